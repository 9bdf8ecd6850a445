// Kernels on memory that the caller owns: addresses, shapes and strides cross, never a framework's types.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <string>

#include "bindings.hpp"
#include "spo/cpu_path.hpp"
#include "spo/policy_loss.hpp"
#include "spo/token_logprob.hpp"

namespace py = pybind11;

namespace {

spo::Dtype dtype_named(const std::string& name) {
  constexpr std::array names{"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<spo::Dtype>(i);
  }
  throw py::value_error("dtype: expected one the kernels read, got " + name);
}

// (address, dtype, shape, strides), or None for an argument that was not given.
spo::Array array_from(const py::handle& given) {
  if (given.is_none()) return {};
  const auto parts = given.cast<py::tuple>();
  return {reinterpret_cast<void*>(parts[0].cast<std::uintptr_t>()), dtype_named(parts[1].cast<std::string>()),
          parts[2].cast<std::vector<std::int64_t>>(), parts[3].cast<std::vector<std::int64_t>>()};
}

// (logits, token_ids, mask, temperatures, temperature, softcap)
spo::TokenRows rows_from(const py::tuple& given) {
  return {array_from(given[0]), array_from(given[1]),    array_from(given[2]),
          array_from(given[3]), given[4].cast<double>(), given[5].cast<double>()};
}

void token_logprob_forward(const py::tuple& rows, const py::object& logprobs, const py::object& entropy,
                           const py::object& stats, std::size_t threads) {
  const spo::TokenRows given = rows_from(rows);
  const spo::Array out = array_from(logprobs), out_entropy = array_from(entropy),
                   out_stats = array_from(stats);
  const py::gil_scoped_release unlocked;
  spo::token_logprob_forward(given, out, out_entropy, out_stats, threads);
}

void token_logprob_backward(const py::tuple& rows, const py::object& stats, const py::object& grad_logprobs,
                            const py::object& grad_entropy, const py::object& out, bool clean,
                            std::size_t threads) {
  const spo::TokenRows given = rows_from(rows);
  const spo::Array kept = array_from(stats), g = array_from(grad_logprobs), h = array_from(grad_entropy),
                   to = array_from(out);
  const py::gil_scoped_release unlocked;
  spo::token_logprob_backward(given, kept, g, h, to, clean, threads);
}

template <class Choice, std::size_t n>
Choice chosen(const py::handle& name, const std::array<const char*, n>& names) {
  const auto wish = name.cast<std::string>();
  for (std::size_t i = 0; i < n; ++i) {
    if (wish == names[i]) return static_cast<Choice>(i);
  }
  throw py::value_error("expected an option of policy_loss, got " + wish);
}

// The attributes of losses.policy_gradient.PolicyLossOptions, by name.
spo::PolicyLossOptions options_from(const py::dict& o) {
  constexpr std::array estimators{"k1", "k2", "k3"};
  constexpr std::array aggregations{"token_mean", "seq_mean_token_mean", "seq_mean_token_sum",
                                    "seq_mean_token_sum_norm"};
  constexpr std::array levels{"token", "sequence", "segment"};
  const auto number = [&](const char* name) { return o[name].cast<double>(); };
  const auto perhaps = [&](const char* name) { return o[name].cast<std::optional<double>>(); };
  return {number("clip_low"),
          number("clip_high"),
          perhaps("dual_clip"),
          perhaps("rollout_is_cap"),
          number("kl_coef"),
          chosen<spo::KlEstimator>(o["kl_estimator"], estimators),
          number("kl_log_ratio_clamp"),
          number("entropy_coef"),
          chosen<spo::Aggregation>(o["aggregation"], aggregations),
          perhaps("max_length").value_or(1),
          number("log_ratio_clamp"),
          chosen<spo::RatioLevel>(o["ratio_level"], levels)};
}

// (old_logprobs, advantages, mask, rollout_logprobs, ref_logprobs, entropy, segment_ids, cu_seqlens,
// normalizer, per_sequence)
spo::PolicyLossTokens tokens_from(const py::tuple& t) {
  return {array_from(t[0]), array_from(t[1]), array_from(t[2]), array_from(t[3]), array_from(t[4]),
          array_from(t[5]), array_from(t[6]), array_from(t[7]), array_from(t[8]), t[9].cast<bool>()};
}

void write_result(const spo::PolicyLossResult& result, const spo::Array& loss, const spo::Array& metrics) {
  spo::Column(loss).store(0, result.loss);
  const spo::Column column(metrics);
  for (std::size_t i = 0; i < result.metrics.size(); ++i)
    column.store(static_cast<std::int64_t>(i), result.metrics[i]);
}

void policy_loss(const py::object& logprobs, const py::tuple& tokens, const py::dict& options,
                 const py::object& grad_logprobs, const py::object& grad_entropy, const py::object& loss,
                 const py::object& metrics, std::size_t threads) {
  const spo::Array values = array_from(logprobs), g = array_from(grad_logprobs), h = array_from(grad_entropy),
                   to_loss = array_from(loss), to_metrics = array_from(metrics);
  const spo::PolicyLossTokens given = tokens_from(tokens);
  const spo::PolicyLossOptions chosen_options = options_from(options);
  const py::gil_scoped_release unlocked;
  write_result(spo::policy_loss(values, given, chosen_options, g, h, threads), to_loss, to_metrics);
}

void fused_policy_loss(const py::tuple& rows, const py::tuple& tokens, const py::dict& options,
                       const py::object& gradient, bool clean, const py::object& loss,
                       const py::object& metrics, std::size_t threads) {
  const spo::TokenRows logits = rows_from(rows);
  const spo::PolicyLossTokens given = tokens_from(tokens);
  const spo::PolicyLossOptions chosen_options = options_from(options);
  const spo::Array to_gradient = array_from(gradient), to_loss = array_from(loss),
                   to_metrics = array_from(metrics);
  const py::gil_scoped_release unlocked;
  write_result(spo::fused_policy_loss(logits, given, chosen_options, to_gradient, clean, threads), to_loss,
               to_metrics);
}

}  // namespace

void bind_kernels(py::module_& m) {
  m.def("cpu_path", &spo::cpu_path);
  m.def("choose_cpu_path", &spo::choose_cpu_path, py::arg("name"));
  m.def("token_logprob_forward", &token_logprob_forward, py::arg("rows"), py::arg("logprobs"),
        py::arg("entropy"), py::arg("stats"), py::arg("threads"));
  m.def("token_logprob_backward", &token_logprob_backward, py::arg("rows"), py::arg("stats"),
        py::arg("grad_logprobs"), py::arg("grad_entropy"), py::arg("out"), py::arg("clean"),
        py::arg("threads"));
  m.def("policy_loss", &policy_loss, py::arg("logprobs"), py::arg("tokens"), py::arg("options"),
        py::arg("grad_logprobs"), py::arg("grad_entropy"), py::arg("loss"), py::arg("metrics"),
        py::arg("threads"));
  m.def("fused_policy_loss", &fused_policy_loss, py::arg("rows"), py::arg("tokens"), py::arg("options"),
        py::arg("gradient"), py::arg("clean"), py::arg("loss"), py::arg("metrics"), py::arg("threads"));
}
