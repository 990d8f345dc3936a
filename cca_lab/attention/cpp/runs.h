// Which columns a block of query rows sees: tiles of columns, and in each the runs that are dense products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cca_lab {

constexpr int64_t kGroup = 16;         // query rows side by side in registers: they share the columns that are computed
constexpr int64_t kBlockRows = 64;     // query rows of a task
constexpr int64_t kTileColumns = 128;  // columns of a tile: its 128 x 64 scores stay in the first-level cache

struct Span {
  int64_t begin, end;

  int64_t size() const { return std::max<int64_t>(0, end - begin); }
  Span within(Span other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

// One interval of the rows 0 .. rows - 1 of a block: row i sees columns [start[i], end[i]) of one source of keys and
// values; neither ever moves back.
struct Interval {
  const int64_t *start, *end;
  int64_t rows;
  size_t source;

  int64_t groups() const { return (rows + kGroup - 1) / kGroup; }

  Span rows_of(int64_t group) const { return {group * kGroup, std::min((group + 1) * kGroup, rows)}; }

  // The columns from the first to the last that some row of the group sees.
  Span columns_of(int64_t group) const { return {start[rows_of(group).begin], end[rows_of(group).end - 1]}; }
};

// Columns that belong to the same groups of rows. Few of these pairs are hidden: those at a group's edges.
struct Run {
  Span columns;
  Span groups;

  Span rows() const { return {groups.begin * kGroup, groups.end * kGroup}; }
};

// Cut a tile of columns where a group begins or ends to see.
inline std::vector<Run> runs_of(const Interval& interval, Span tile) {
  std::vector<int64_t> cuts{tile.begin, tile.end};
  for (int64_t group = 0; group < interval.groups(); ++group) {
    const Span columns = interval.columns_of(group);
    cuts.push_back(std::clamp(columns.begin, tile.begin, tile.end));
    cuts.push_back(std::clamp(columns.end, tile.begin, tile.end));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<Run> runs;
  Span groups{0, 0};
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const Span columns{cuts[i], cuts[i + 1]};
    if (columns.size() == 0) continue;
    while (groups.end < interval.groups() && interval.columns_of(groups.end).begin <= columns.begin) ++groups.end;
    while (groups.begin < groups.end && interval.columns_of(groups.begin).end <= columns.begin) ++groups.begin;
    if (groups.size() > 0) runs.push_back({columns, groups});
  }
  return runs;
}

// Call visit(tile) for tiles over all columns that some row of the block sees.
template <class Visit>
void each_tile(const Interval& interval, const Visit& visit) {
  const Span all{interval.start[0], interval.end[interval.rows - 1]};
  for (int64_t column = all.begin; column < all.end; column += kTileColumns)
    visit(Span{column, std::min(column + kTileColumns, all.end)});
}

// Call visit(rows, columns) for each group that sees columns of the tile.
template <class Visit>
void each_group(const Interval& interval, Span tile, const Visit& visit) {
  for (int64_t group = 0; group < interval.groups(); ++group) {
    const Span columns = interval.columns_of(group).within(tile);
    if (columns.size() > 0) visit(interval.rows_of(group), columns);
  }
}

}  // namespace cca_lab
