#include "tests/engine_side/engine/torch/recorded_step.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <set>
#include <stdexcept>
#include <string>

namespace layercast::testing {
namespace {

// Torch keeps this key for tests: where it is switched on, it sees every operation before all others do.
constexpr c10::DispatchKey kRecording = c10::DispatchKey::TESTING_ONLY_GenericMode;

template <typename Visit>
void ForEachTensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) ForEachTensor(item, visit);
  }
}

// The results of an operation, which are on top of the stack.
template <typename Visit>
void ForEachResult(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const Visit& visit) {
  for (std::size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i) {
    ForEachTensor(stack[i], visit);
  }
}

void Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard as_one(kRecording);
  op.callBoxed(stack);
}

using Storage = const c10::StorageImpl*;
Storage StorageOf(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// Resource: one run of a step.
class Recording {
 public:
  // `there`: memory that was there before; null: whatever is found.
  explicit Recording(const std::set<Storage>* there) : there_(there) {}

  // Does the operation and records it. The stack has its arguments, then its results.
  void Do(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  std::vector<RecordedOperation>& operations() { return operations_; }
  const std::set<Storage>& found() const { return found_; }

 private:
  void RefuseHostReads(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) const;
  void CheckRead(const c10::OperatorHandle& op, const at::Tensor& tensor);

  const std::set<Storage>* const there_;
  std::set<Storage> found_;     // what was read, and no operation had made
  std::set<Storage> unfilled_;  // made by an operation, without contents
  std::set<Storage> written_;   // by operations
  std::vector<RecordedOperation> operations_;
};

[[noreturn]] void RefuseOperation(const c10::OperatorHandle& op, const std::string& why) {
  throw std::runtime_error(toString(op.operator_name()) + " cannot be captured: " + why);
}

void Recording::RefuseHostReads(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) const {
  if (op.hasTag(at::Tag::data_dependent_output)) RefuseOperation(op, "the host waits for its result");
  if (op.hasTag(at::Tag::cudagraph_unsafe)) RefuseOperation(op, "torch says so");
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return;
  const bool of_places =
      op.operator_name().name == "aten::index";  // whose shapes are those of the places, but of masks
  bool masks = false;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    ForEachTensor(arguments[i], [&](const at::Tensor& tensor) { masks = masks || tensor.scalar_type() == at::kBool; });
  }
  if (!of_places || masks) RefuseOperation(op, "its shape depends on values");
}

void Recording::CheckRead(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  // A number in an expression is passed by value.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() || tensor.numel() == 0) return;
  const Storage storage = StorageOf(tensor);
  if (written_.contains(storage)) return;
  if (!unfilled_.contains(storage)) {
    found_.insert(storage);
    if (there_ == nullptr || there_->contains(storage)) return;
  }
  RefuseOperation(op, "it reads memory that the host has just filled");
}

void Recording::Do(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& expected = op.schema().arguments();
  RecordedOperation operation{.handle = op,
                              .arguments = {stack->end() - static_cast<std::ptrdiff_t>(expected.size()), stack->end()}};
  RefuseHostReads(op, operation.arguments);
  std::set<Storage> given, filled;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const c10::AliasInfo* const alias = expected[i].alias_info();
    ForEachTensor(operation.arguments[i], [&](const at::Tensor& tensor) {
      given.insert(StorageOf(tensor));
      if (alias == nullptr) CheckRead(op, tensor);  // else it is viewed or written
      if (alias != nullptr && alias->isWrite()) filled.insert(StorageOf(tensor));
    });
  }
  Call(op, stack);
  // Memory without contents is no result: what fills it counts.
  const bool empty = op.operator_name().name.find("empty") != std::string::npos;
  ForEachResult(op, *stack, [&](const at::Tensor& tensor) {
    const bool made = !given.contains(StorageOf(tensor));
    operation.made.push_back(made && !empty ? std::optional(tensor) : std::nullopt);
    if (made) (empty ? unfilled_ : written_).insert(StorageOf(tensor));
  });
  written_.insert(filled.begin(), filled.end());
  operations_.push_back(std::move(operation));
}

thread_local Recording* recording = nullptr;  // torch calls a function that has no state of its own

void Record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // What torch itself puts together of other operations is not one: these come here in turn.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  } else {
    recording->Do(op, stack);
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Record>());
}

void Run(Recording& into, const std::function<void()>& queue) {
  recording = &into;
  const c10::impl::IncludeDispatchKeyGuard on(kRecording);
  queue();
}

}  // namespace

RecordedStep::RecordedStep(const std::function<void()>& queue) {
  Recording before(nullptr);  // keeps what it found and made, so that no memory of the second run is taken for it
  Run(before, queue);
  Recording captured(&before.found());
  Run(captured, queue);
  operations_ = std::move(captured.operations());
}

void RecordedStep::Replay() const {
  for (const RecordedOperation& operation : operations_) {
    torch::jit::Stack stack = operation.arguments;
    operation.handle.callBoxed(stack);
    auto made = operation.made.begin();
    ForEachResult(operation.handle, stack, [&](const at::Tensor& tensor) {
      if (*made) (*made)->copy_(tensor);
      ++made;
    });
  }
}

}  // namespace layercast::testing
