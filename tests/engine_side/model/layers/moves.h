// Where the pieces of a tensor go on one rank, as numbers that a test can spell out.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/linear.h"

namespace layercast::testing {

using Range = std::pair<std::int64_t, std::int64_t>;

// Source and destination of each piece along `axis`.
struct Move {
  Range source, destination;
  bool operator==(const Move&) const = default;
};
inline void PrintTo(const Move& move, std::ostream* out) {
  *out << "(" << move.destination.first << "-" << move.destination.second << " <- " << move.source.first << "-"
       << move.source.second << ")";
}

inline std::vector<Move> Moves(const Module& layer, const std::string& name, const std::string& shard,
                               const Shape& shape, std::size_t axis = 0) {
  std::vector<Move> moves;
  for (const PlacedPiece& piece : layer.Place(name, shard, {name, DType::kF32, shape})) {
    const auto range = [&](const Box& box) { return Range{box.begin[axis], box.begin[axis] + box.extent[axis]}; };
    moves.push_back({range(piece.source), range(piece.destination)});
  }
  return moves;
}

inline LayerContext Rank(int rank, int size) { return {{rank, size}, DType::kF32, true}; }

}  // namespace layercast::testing
