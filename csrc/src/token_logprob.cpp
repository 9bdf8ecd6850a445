#include "spo/token_logprob.hpp"

#include "token_rows.hpp"

namespace spo {

void token_logprob_forward(const TokenRows& rows, const Array& logprobs, const Array& entropy,
                           const Array& stats, std::size_t threads) {
  const RowReader reader(rows);
  const std::vector<std::int64_t> active = reader.checked_rows();
  const Column values(logprobs), entropies(entropy);
  auto* kept = static_cast<RowStats*>(stats.data);
  for (std::int64_t i = 0; i < reader.count(); ++i) {
    if (reader.active(i)) continue;
    values.store(i, 0);
    if (entropies) entropies.store(i, 0);
  }
  for_rows(active, reader.vocabulary(), threads, [&](std::int64_t i) {
    const RowScore score = score_row(reader.row(i), reader.token(i), static_cast<bool>(entropies));
    values.store(i, score.logprob);
    if (entropies) entropies.store(i, score.stats.entropy);
    if (kept) kept[i] = score.stats;
  });
}

void token_logprob_backward(const TokenRows& rows, const Array& stats, const Array& grad_logprobs,
                            const Array& grad_entropy, const Array& out, bool clean, std::size_t threads) {
  const RowReader reader(rows);
  const RowWriter writer(out);
  const Column g(grad_logprobs), h(grad_entropy);
  const auto* kept = static_cast<const RowStats*>(stats.data);
  std::vector<std::int64_t> touched;
  for (std::int64_t i = 0; i < reader.count(); ++i) {
    if (!clean || reader.active(i)) touched.push_back(i);
  }
  if (2 * static_cast<std::int64_t>(touched.size()) > reader.count()) writer.expect_all();
  for_rows(touched, reader.vocabulary(), threads, [&](std::int64_t i) {
    if (!reader.active(i)) return writer.zero(i);
    write_row_gradient(reader.row(i), reader.token(i), kept[i], {g ? g[i] : 0, h ? h[i] : 0}, writer.row(i),
                       writer.stride());
  });
}

}  // namespace spo
