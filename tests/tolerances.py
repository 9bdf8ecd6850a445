"""Every tolerance of the suite, and why it is no smaller."""

# float64 against float64 of the same formula in another order of operations: a few hundred roundings of 1.1e-16.
# Absolute and relative; values are of order 1 to 100.
FLOAT64 = 1e-12

# float32 against float64 of the same inputs, values of order 1 to 10: a dozen roundings of 6e-8.
FLOAT32 = 2e-6

# Log-prob of N(0, 3) logits, V = 151936, against float64 of the same bfloat16 values. Results lie in (-32, -2), where
# one rounding to float32 costs up to 9.5e-7; the sum and the logarithm add less than that.
LOGPROB_LARGE_VOCABULARY = 2e-6

# The trackers' promise: any order of arrival, and the exact rational value. Values are in [0, 1].
TRACKER = 1e-12

# normalize_advantages: any order of the same values gives the same result to this, relative to the largest result.
NORMALIZE_ORDER = 1e-12

# A product of bfloat16 matrices rounds logits to 8 bits: 2^-9 of logits of order 1 to 4, twice (forward and as reference).
BFLOAT16_HEAD = 3e-2
