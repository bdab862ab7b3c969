#include "src/checkpoint/torch_save/torch_state_dict.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = PickleNode::Kind;

constexpr std::size_t kMostDimensions = 64;  // as torch has it

// A storage class and its dtype. Tensors of an untyped storage say their own.
struct StorageClass {
  std::string_view name;
  std::optional<DType> dtype;
};
constexpr StorageClass kStorages[] = {
    {"torch.FloatStorage", DType::kF32},        {"torch.DoubleStorage", DType::kF64},
    {"torch.HalfStorage", DType::kF16},         {"torch.BFloat16Storage", DType::kBF16},
    {"torch.LongStorage", DType::kI64},         {"torch.IntStorage", DType::kI32},
    {"torch.ShortStorage", DType::kI16},        {"torch.CharStorage", DType::kI8},
    {"torch.ByteStorage", DType::kU8},          {"torch.BoolStorage", DType::kBool},
    {"torch.ComplexFloatStorage", DType::kC64}, {"torch.storage.UntypedStorage", std::nullopt},
};

constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildTensorWithDType = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kSize = "torch.Size";

constexpr std::string_view kGlobals[] = {
    "collections.OrderedDict",
    kRebuildTensor,
    kRebuildTensorWithDType,
    kRebuildParameter,
    kSize,
    "torch.FloatStorage",
    "torch.DoubleStorage",
    "torch.HalfStorage",
    "torch.BFloat16Storage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    "torch.ComplexFloatStorage",
    "torch.storage.UntypedStorage",
    "torch.float32",
    "torch.float64",
    "torch.float16",
    "torch.bfloat16",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.uint16",
    "torch.uint32",
    "torch.uint64",
    "torch.bool",
    "torch.complex64",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.float8_e8m0fnu",
    "torch.float8_e4m3fnuz",
    "torch.float8_e5m2fnuz",
};

// The keys under which training scripts keep the state dict, beside epochs and optimizers.
constexpr std::string_view kWrappers[] = {"model", "state_dict", "module"};

struct Storage {
  std::string key;
  std::optional<DType> dtype;
  std::uint64_t bytes = 0;
};

class StateDictReader {
 public:
  StateDictReader(const Pickle& pickle,
                  const std::function<std::optional<std::uint64_t>(const std::string&)>& storage_bytes,
                  const std::string& subject)
      : pickle_(pickle), storage_bytes_(storage_bytes), subject_(subject) {}

  std::vector<TorchTensor> Read() {
    std::uint32_t dict = pickle_.root;
    Expect(dict, Kind::kDict, "a dict of tensors");
    if (const auto wrapped = FindWrapped(dict)) dict = *wrapped;
    const std::span<const std::uint32_t> items = pickle_.ItemsOf(dict);
    std::vector<TorchTensor> tensors;
    std::unordered_set<std::string_view> names;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      Expect(items[i], Kind::kText, "a tensor's name");
      name_ = pickle_.TextOf(items[i]);
      if (!names.insert(name_).second) Fail(items[i], "expected each name once, got this one twice");
      tensors.push_back(ReadTensor(items[i + 1]));
      CountDescription(tensors.back(), items[i + 1]);
    }
    return tensors;
  }

 private:
  [[noreturn]] void Fail(std::uint32_t node, const std::string& what, ErrorCode code = ErrorCode::kCorrupt) const {
    throw Error(code, subject_ + ": " + (name_.empty() ? "" : "tensor " + Quote(name_) + ": ") + "at byte " +
                          std::to_string(pickle_[node].at) + ": " + what);
  }

  void Expect(std::uint32_t node, Kind kind, const std::string& what) const {
    if (pickle_[node].kind != kind) Fail(node, "expected " + what + ", got " + Describe(pickle_, node));
  }

  // Limits how much the tensors' descriptions take. A pickle's memo can name again in two bytes what was said once, and
  // each time it is described anew. Tied weights are named twice or thrice. Without a limit, a file of some MB could
  // ask for gigabytes.
  void CountDescription(const TorchTensor& tensor, std::uint32_t node) {
    described_ += tensor.spec.shape.size() + tensor.strides.size() + tensor.storage.size();
    if (described_ <= pickle_.num_bytes()) return;
    Fail(node, "expected no more sizes, strides and letters of storages' keys in all tensors than the pickle has " +
                   ("bytes (" + std::to_string(pickle_.num_bytes()) + "), got " + std::to_string(described_)) +
                   " up to this one: few are named over and over");
  }

  std::optional<std::uint32_t> FindWrapped(std::uint32_t dict) const {
    const std::span<const std::uint32_t> items = pickle_.ItemsOf(dict);
    std::optional<std::size_t> found;  // an index in items
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (pickle_[items[i + 1]].kind == Kind::kCall) return std::nullopt;  // this dict is a state dict itself
      const bool wraps = pickle_[items[i + 1]].kind == Kind::kDict && pickle_[items[i]].kind == Kind::kText &&
                         std::ranges::find(kWrappers, pickle_.TextOf(items[i])) != std::end(kWrappers);
      if (!wraps) continue;
      if (found) {
        Fail(items[i], "expected one state dict, got dicts under " + Quote(pickle_.TextOf(items[*found])) +
                           " and under " + Quote(pickle_.TextOf(items[i])) + ": save the one that is meant by itself");
      }
      found = i;
    }
    return found ? std::optional(items[*found + 1]) : std::nullopt;
  }

  // The arguments are (data, requires_grad, backward_hooks) or (storage, offset, size, stride, requires_grad,
  // backward_hooks, ...).
  TorchTensor ReadTensor(std::uint32_t node) const {
    if (pickle_[node].kind != Kind::kCall) {
      Fail(node, "expected a tensor, got " + Describe(pickle_, node), ErrorCode::kUnsupported);
    }
    const std::string_view callee = pickle_.TextOf(pickle_.ItemsOf(node)[0]);
    if (callee == kRebuildParameter) return ReadTensorItself(Arguments(node, 3, 3)[0]);
    return ReadTensorItself(node);
  }

  TorchTensor ReadTensorItself(std::uint32_t node) const {
    const bool is_call = pickle_[node].kind == Kind::kCall;
    const std::string_view callee = is_call ? pickle_.TextOf(pickle_.ItemsOf(node)[0]) : std::string_view();
    if (callee != kRebuildTensor && callee != kRebuildTensorWithDType) {
      Fail(node, "expected a tensor, got " + Describe(pickle_, node), ErrorCode::kUnsupported);
    }
    const bool says_dtype = callee == kRebuildTensorWithDType;
    const std::span<const std::uint32_t> given = Arguments(node, says_dtype ? 7 : 6, says_dtype ? 8 : 7);
    const Storage storage = ReadStorage(given[0]);
    TorchTensor tensor;
    tensor.spec.name = name_;
    tensor.storage = storage.key;
    tensor.spec.dtype = says_dtype ? ReadDType(given[6]) : OwnDType(storage, given[0]);
    tensor.spec.shape = ReadNumbers(given[2], "its size");
    tensor.strides = ReadNumbers(given[3], "its strides");
    CheckPlain(given, says_dtype);
    tensor.begin = CheckExtent(tensor, ReadNumber(given[1], "its offset in the storage"), storage, node);
    return tensor;
  }

  std::span<const std::uint32_t> Arguments(std::uint32_t call, std::size_t least, std::size_t most) const {
    const std::uint32_t tuple = pickle_.ItemsOf(call)[1];
    const std::size_t count = pickle_.ItemsOf(tuple).size();
    if (count >= least && count <= most) return pickle_.ItemsOf(tuple);
    Fail(call, std::string(pickle_.TextOf(pickle_.ItemsOf(call)[0])) + ": expected " + std::to_string(least) + " to " +
                   std::to_string(most) + " arguments, got " + std::to_string(count));
  }

  // Views that are conjugated or negated when they are read say so in the last argument. They are refused.
  void CheckPlain(std::span<const std::uint32_t> given, bool says_dtype) const {
    const std::size_t metadata = says_dtype ? 7 : 6;
    if (given.size() <= metadata || pickle_[given[metadata]].kind == Kind::kNone) return;
    if (pickle_[given[metadata]].kind == Kind::kDict && pickle_.ItemsOf(given[metadata]).empty()) return;
    Fail(given[metadata], "expected no metadata, got " + Describe(pickle_, given[metadata]), ErrorCode::kUnsupported);
  }

  // The id is ("storage", class, key, location, number of elements), or, for an untyped storage, the number of bytes.
  Storage ReadStorage(std::uint32_t node) const {
    Expect(node, Kind::kPersistent, "a storage");
    const std::uint32_t id = pickle_.ItemsOf(node)[0];
    Expect(id, Kind::kTuple, "a storage's id");
    const std::span<const std::uint32_t> fields = pickle_.ItemsOf(id);
    if (fields.size() != 5) Fail(id, "a storage's id: expected 5 fields, got " + std::to_string(fields.size()));
    Expect(fields[0], Kind::kText, "the text 'storage'");
    if (pickle_.TextOf(fields[0]) != "storage")
      Fail(fields[0], "expected 'storage', got " + Describe(pickle_, fields[0]));
    Expect(fields[1], Kind::kGlobal, "a storage's class");
    const auto* const known = std::ranges::find(kStorages, pickle_.TextOf(fields[1]), &StorageClass::name);
    if (known == std::end(kStorages))
      Fail(fields[1], "expected a storage's class, got " + Describe(pickle_, fields[1]));
    Expect(fields[2], Kind::kText, "a storage's key");
    const std::uint64_t count = ReadNumber(fields[4], "the number of a storage's elements");
    Storage storage{.key = std::string(pickle_.TextOf(fields[2])), .dtype = known->dtype};
    const std::optional<std::uint64_t> bytes = storage_bytes_(storage.key);
    if (!bytes) Fail(fields[2], "expected the record data/" + storage.key + ", got none of that name");
    const std::uint64_t width = storage.dtype ? ElementBytes(*storage.dtype) : 1;
    if (count > *bytes / width || count * width != *bytes) {
      Fail(fields[4], "storage " + Quote(storage.key) + ": expected " + std::to_string(count) + " elements of " +
                          std::to_string(width) + " bytes, got a record of " + std::to_string(*bytes) + " bytes");
    }
    storage.bytes = *bytes;
    return storage;
  }

  static std::uint64_t ElementBytes(DType dtype) { return static_cast<std::uint64_t>(BitsPerElement(dtype)) / 8; }

  DType OwnDType(const Storage& storage, std::uint32_t node) const {
    if (!storage.dtype) Fail(node, "expected a storage that has a dtype, got an untyped one");
    return *storage.dtype;
  }

  DType ReadDType(std::uint32_t node) const {
    Expect(node, Kind::kGlobal, "a dtype");
    const std::optional<DType> dtype = DTypeFromTorch(pickle_.TextOf(node));
    if (!dtype) Fail(node, "expected a dtype, got " + Describe(pickle_, node));
    return *dtype;
  }

  std::uint64_t ReadNumber(std::uint32_t node, const std::string& what) const {
    Expect(node, Kind::kInt, what);
    if (pickle_[node].number < 0) Fail(node, what + ": expected no negative number, got " + Describe(pickle_, node));
    return static_cast<std::uint64_t>(pickle_[node].number);
  }

  std::vector<std::int64_t> ReadNumbers(std::uint32_t node, const std::string& what) const {
    const bool is_size = pickle_[node].kind == Kind::kCall && pickle_.TextOf(pickle_.ItemsOf(node)[0]) == kSize;
    const std::uint32_t tuple = is_size ? Arguments(node, 1, 1)[0] : node;
    Expect(tuple, Kind::kTuple, what);
    const std::span<const std::uint32_t> items = pickle_.ItemsOf(tuple);
    if (items.size() > kMostDimensions) {
      Fail(node, what + ": expected at most 64 dimensions, got " + std::to_string(items.size()));
    }
    std::vector<std::int64_t> numbers;
    for (const std::uint32_t item : items) numbers.push_back(static_cast<std::int64_t>(ReadNumber(item, what)));
    return numbers;
  }

  // Returns the byte at which the tensor begins, once all of it is known to lie inside its storage. A tensor of more
  // elements than that holds (`expand`) would let a small file ask for any amount of memory.
  std::uint64_t CheckExtent(const TorchTensor& tensor, std::uint64_t offset, const Storage& storage,
                            std::uint32_t node) const {
    const Shape& shape = tensor.spec.shape;
    if (shape.size() != tensor.strides.size()) {
      Fail(node, "expected as many strides as dimensions, got " + ToString(tensor.strides) + " for " + ToString(shape));
    }
    const std::uint64_t width = ElementBytes(tensor.spec.dtype);
    const std::uint64_t capacity = storage.bytes / width;
    const auto refuse = [&]() {
      Fail(node, Describe(tensor.spec) + " with strides " + ToString(tensor.strides) + " at element " +
                     std::to_string(offset) + ": expected it inside a storage of " + std::to_string(capacity) +
                     " elements");
    };
    const bool empty = std::ranges::find(shape, 0) != shape.end();
    std::uint64_t elements = 1;
    std::uint64_t last = offset;  // the farthest element
    for (std::size_t d = 0; d < shape.size() && !empty; ++d) {
      const auto steps = static_cast<std::uint64_t>(shape[d]) - 1;
      const auto stride = static_cast<std::uint64_t>(tensor.strides[d]);
      if (last > capacity || (stride != 0 && steps > capacity / stride)) refuse();
      last += steps * stride;
      if (static_cast<std::uint64_t>(shape[d]) > capacity / elements) refuse();
      elements *= static_cast<std::uint64_t>(shape[d]);
    }
    if (empty ? offset > capacity : last >= capacity) refuse();
    try {
      (void)tensor.spec.num_bytes();
    } catch (const Error& error) {
      Fail(node, error.what());  // [0, 2^62, 2^62]
    }
    return offset * width;
  }

  const Pickle& pickle_;
  const std::function<std::optional<std::uint64_t>(const std::string&)>& storage_bytes_;
  const std::string& subject_;
  std::string_view name_;        // of the tensor that is being read
  std::uint64_t described_ = 0;  // bytes of the descriptions so far
};

// Copies dimension `d` and those after it. It recurses at most kMostDimensions deep.
std::byte* CopyFrom(const TorchTensor& tensor, std::size_t d, std::size_t width, const std::byte* source,
                    std::byte* destination) {
  if (d == tensor.strides.size()) {
    std::memcpy(destination, source, width);
    return destination + width;
  }
  const auto size = static_cast<std::size_t>(tensor.spec.shape[d]);
  const std::size_t stride = static_cast<std::size_t>(tensor.strides[d]) * width;
  if (d + 1 == tensor.strides.size() && stride == width) {
    std::memcpy(destination, source, size * width);
    return destination + size * width;
  }
  for (std::size_t i = 0; i < size; ++i) destination = CopyFrom(tensor, d + 1, width, source + i * stride, destination);
  return destination;
}

}  // namespace

bool TorchTensor::IsContiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = strides.size(); d-- > 0;) {
    if (spec.shape[d] != 1 && strides[d] != expected) return false;
    expected *= spec.shape[d];
  }
  return true;
}

std::span<const std::string_view> TorchGlobals() { return kGlobals; }

std::vector<TorchTensor> ReadStateDict(
    const Pickle& pickle, const std::function<std::optional<std::uint64_t>(const std::string&)>& storage_bytes,
    const std::string& subject) {
  return StateDictReader(pickle, storage_bytes, subject).Read();
}

void CopyStrided(const TorchTensor& tensor, std::span<const std::byte> storage, std::byte* destination) {
  if (tensor.spec.num_elements() == 0) return;
  CopyFrom(tensor, 0, static_cast<std::size_t>(BitsPerElement(tensor.spec.dtype)) / 8, storage.data() + tensor.begin,
           destination);
}

}  // namespace layercast
