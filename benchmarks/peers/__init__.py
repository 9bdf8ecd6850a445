"""What others do for the same tasks: their own functions where they can be imported, their arithmetic otherwise."""
