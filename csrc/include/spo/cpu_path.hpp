#pragma once
#include <string>

namespace spo {

// Which instructions the kernels use: "avx2" where the machine has AVX2, FMA and F16C, else "portable".
// SPO_FAST_CPU=portable in the environment, read once, forces the latter.
std::string cpu_path();

// Takes "avx2" or "portable" for the rest of the process, "" for the machine's own choice. Throws
// std::invalid_argument for another name or one this machine cannot run.
void choose_cpu_path(const std::string& name);

}  // namespace spo
