#pragma once
#include <pybind11/pybind11.h>

void bind_trackers(pybind11::module_& m);
void bind_alfworld(pybind11::module_& m);
void bind_state_table(pybind11::module_& m);
void bind_kernels(pybind11::module_& m);
