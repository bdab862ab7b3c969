#include "engine_side/reload/commit/commit.h"

#include <algorithm>
#include <limits>

#include "engine_side/reload/layout/strided.h"
#include "src/base/check.h"

namespace layercast {
namespace {

// Bytes of a share. Copying them takes about twice as long as waking a thread.
constexpr std::size_t kShareBytes = std::size_t{1} << 20;

bool MayBeCut(const KernelTensor& tensor) { return tensor.padding.empty() && IsPacked(tensor.destination); }

std::byte* AddressOf(const TensorPiece& piece) {
  LAYERCAST_CHECK(MayBeCut(piece.tensor));
  return piece.tensor.destination.address + piece.begin;
}

void ZeroPadding(Place& place, const KernelTensor& tensor) {
  for (const CapturedBuffer& padding : tensor.padding) place.Zero(padding);
}

}  // namespace

void WriteCaptured(Place& place, const KernelTensor& tensor, std::span<const std::byte> bytes) {
  place.Scatter(bytes, tensor.destination);
  ZeroPadding(place, tensor);
}

std::vector<CommitShare> SharesOf(const Place& place, std::span<const KernelTensor> tensors) {
  const std::size_t share_bytes = place.works_at_once() ? kShareBytes : std::numeric_limits<std::size_t>::max();
  std::vector<CommitShare> shares;
  std::size_t room = 0;  // of the last share
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!place.Holds(tensors[i].destination)) continue;
    const bool may_be_cut = tensors[i].num_bytes > share_bytes && MayBeCut(tensors[i]);
    std::size_t begin = 0;
    do {  // once for a tensor without bytes, which may have padding
      if (room == 0) {
        shares.push_back({.first = i, .begin = begin, .last = i, .end = begin});
        room = share_bytes;
      }
      const std::size_t left = tensors[i].num_bytes - begin;
      const std::size_t bytes = may_be_cut ? std::min(left, room) : left;
      begin += bytes;
      room -= std::min(bytes, room);
      shares.back().last = i;
      shares.back().end = begin;
    } while (begin < tensors[i].num_bytes);
  }
  return shares;
}

void WritePiece(Place& place, const TensorPiece& piece, std::span<const std::byte> bytes) {
  if (piece.is_whole()) return WriteCaptured(place, piece.tensor, bytes);
  place.Copy(bytes.data() + piece.begin, AddressOf(piece), piece.num_bytes());
}

void SavePiece(Place& place, const TensorPiece& piece, std::span<std::byte> log) {
  if (piece.is_whole()) return place.Save(piece.tensor.destination, log);
  place.Copy(AddressOf(piece), log.data() + piece.begin, piece.num_bytes());
}

void RestorePiece(Place& place, const TensorPiece& piece, std::span<const std::byte> log) {
  if (!piece.is_whole()) return place.Copy(log.data() + piece.begin, AddressOf(piece), piece.num_bytes());
  place.Restore(log, piece.tensor.destination);
  ZeroPadding(place, piece.tensor);
}

}  // namespace layercast
