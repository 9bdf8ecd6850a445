#include <numeric>

#include "spo/token_logprob.hpp"
#include "token_rows.hpp"

namespace spo {
namespace {

std::vector<std::int64_t> every_row(const RowReader& reader) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(reader.count()));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

}  // namespace

void add_tile(const TokenRows& tile, std::int64_t first, bool with_entropy, const Array& sums,
              const Array& chosen, std::size_t threads) {
  const RowReader reader(tile);
  auto* running = static_cast<RowSums*>(sums.data);
  auto* logits = static_cast<double*>(chosen.data);
  for_rows(every_row(reader), reader.vocabulary(), threads, [&](std::int64_t i) {
    const Row row = reader.row(i);
    row_kernel().add(row, with_entropy, running[i]);
    if (const std::int64_t place = reader.token(i) - first; place >= 0 && place < row.size) {
      logits[i] = logit_at(row, place);
    }
  });
}

void score_tiles(const TokenRows& tile, const Array& sums, const Array& chosen, const Array& logprobs,
                 const Array& entropy) {
  const RowReader reader(tile);
  const Column values(logprobs), entropies(entropy);
  const auto* logits = static_cast<const double*>(chosen.data);
  for (std::int64_t i = 0; i < reader.count(); ++i) {
    const RowSums total = static_cast<const RowSums*>(sums.data)[i];
    const RowScore score =
        score_of(total, static_cast<float>(logits[i]), reader.row(i), static_cast<bool>(entropies));
    values.store(i, score.logprob);
    if (entropies) entropies.store(i, score.stats.entropy);
    static_cast<RowStats*>(sums.data)[i] = score.stats;
  }
}

void write_tile_gradient(const TokenRows& tile, std::int64_t first, const Array& stats, const Array& chosen,
                         const Array& grad_logprobs, const Array& grad_entropy, std::size_t threads) {
  const RowReader reader(tile);
  const RowWriter writer(tile.logits);
  const Column g(grad_logprobs), h(grad_entropy);
  const auto* kept = static_cast<const RowStats*>(stats.data);
  const auto* logits = static_cast<const double*>(chosen.data);
  for_rows(every_row(reader), reader.vocabulary(), threads, [&](std::int64_t i) {
    write_piece_gradient(reader.row(i), first, reader.token(i), static_cast<float>(logits[i]), kept[i],
                         {g ? g[i] : 0, h ? h[i] : 0}, writer.row(i), writer.stride());
  });
}

}  // namespace spo
