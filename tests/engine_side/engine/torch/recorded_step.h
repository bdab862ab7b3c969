// A CUDA graph, simulated on the CPU: what a step queues is recorded once, operation by operation with the memory that
// each reads and writes, and replayed without the step's own code. For tests of what is to be captured.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace layercast::testing {

// An operation as it was called. Its tensors are kept, so the memory that it reads and writes never moves, and is given
// to nobody else: a graph's own. Value.
struct RecordedOperation {
  c10::OperatorHandle handle;
  torch::jit::Stack arguments;
  // Memory that it made and filled. What it returned besides are views of its arguments, or those that it wrote to.
  std::vector<std::optional<at::Tensor>> made{};
};

// Resource; one thread only. As with a graph, what the host does between the operations happens once, while they are
// recorded. (A graph's operations do not run then, these do. And what the host reads through a bare pointer shows only
// in what a replay computes.)
class RecordedStep {
 public:
  // Runs `queue` twice, as one does before a capture and in it, and records the second time. Throws std::runtime_error,
  // naming the operation, where a capture would fail, or hold what is true of that one time alone: an operation whose
  // result the host waits for, or whose shapes depend on values; one that reads memory which neither was there before
  // nor was written by an operation.
  explicit RecordedStep(const std::function<void()>& queue);

  // Does the operations again, on the same memory.
  void Replay() const;
  std::size_t operations() const { return operations_.size(); }

 private:
  std::vector<RecordedOperation> operations_;
};

}  // namespace layercast::testing
