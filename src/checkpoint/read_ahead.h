// Reads tensors ahead of whoever takes them, several at once, so that files are read, records checked and blocks
// dequantized while an earlier tensor is being processed. Used by Checkpoint's walks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "layercast/weights_iterator.h"

namespace layercast {

// Resource; one thread only. Its own threads ("lc-read") call `read`, several at a time.
class ReadAhead final : public WeightsIterator {
 public:
  // Tensor i of the walk has `bytes[i]` bytes, and read(i) returns it, with an owner. `window_bytes` bounds the tensors
  // that were read and not yet taken, but one is always read, however large.
  ReadAhead(std::vector<std::uint64_t> bytes, std::function<NamedTensor(std::size_t)> read, std::size_t threads,
            std::uint64_t window_bytes);
  ~ReadAhead() override;

  // Returns the tensors in order. What read(i) threw is thrown in tensor i's place, and ends the walk.
  std::optional<NamedTensor> Next() override;

 private:
  struct Slot {
    std::optional<NamedTensor> tensor;
    std::exception_ptr error;
  };

  void Work(const std::stop_token& stop);
  bool MayRead() const;

  const std::function<NamedTensor(std::size_t)> read_;
  const std::vector<std::uint64_t> bytes_;
  const std::uint64_t window_bytes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Slot> slots_;    // guarded by mutex_, as is what follows
  std::size_t next_read_ = 0;  // the first that nobody reads yet
  std::size_t next_take_ = 0;
  std::uint64_t ahead_bytes_ = 0;      // of the tensors in [next_take_, next_read_)
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

}  // namespace layercast
