// What the forward passes of one engine's ranks need from each other: sums and concatenations of floats. All ranks call
// the same operations in the same order. Used by the decoder; torch-free.
#pragma once

#include <algorithm>
#include <span>

namespace layercast {

// Resource; one thread only (each rank has its own). Every call is a barrier. Calls throw kUnavailable or
// kDeadlineExceeded, naming the rank that did not come; after that the group is broken and every call throws.
class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces `values` by their sum over the ranks. It is added up in rank order, so that all ranks get the same bits.
  virtual void AllReduceSum(std::span<float> values) = 0;
  // Sets `all` to the ranks' values one after the other; all.size() == size() * mine.size().
  virtual void AllGather(std::span<const float> mine, std::span<float> all) = 0;
};

// The collective of a group of one rank, which waits for nothing.
class SingleRank final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void AllReduceSum(std::span<float>) override {}
  void AllGather(std::span<const float> mine, std::span<float> all) override {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
};

}  // namespace layercast
