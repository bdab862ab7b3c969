#include "tests/support/device/deferred_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/quant/rescale.h"
#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/base/rounding.h"
#include "src/device/kernels/cuda_fault.h"
#include "src/tensor/cast.h"
#include "src/tensor/element.h"
#include "src/tensor/exponential.h"
#include "src/tensor/kernel_dtypes.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kDeviceBytes = std::size_t{1} << 32;  // of addresses: memory is what is touched
// Memory is opened and closed for every wait, page by page: with pages of 4 KiB that is nearly all that tests of a
// device spend their time on.
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::byte kFresh{0xA5};
constexpr std::byte kGone{0x5C};

std::size_t Size(DType dtype) { return static_cast<std::size_t>(BitsPerElement(dtype)) / 8; }

std::span<std::uint8_t> Codes(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

// As a device's loads and stores of whole elements: else they end all work on it.
void ExpectAligned(const void* address, std::size_t bytes) {
  if (bytes <= 1 || reinterpret_cast<std::uintptr_t>(address) % bytes == 0) return;
  throw std::logic_error("a device was given elements of " + std::to_string(bytes) + " bytes that are not aligned");
}

// The first wrong value of a piece, as a kernel reports it.
std::uint64_t WordOf(const MatrixView& rows, std::int64_t first_row, WorkerPool& pool) {
  const ScanResult scan = Scan(rows, pool);
  const bool finite = scan.first_non_finite < 0;
  return EncodeCudaFault({finite ? CudaFault::Kind::kAboveAmax : CudaFault::Kind::kNan,
                          first_row * rows.cols + (finite ? 0 : scan.first_non_finite)});
}

}  // namespace

class DeferredDevice::Working {
 public:
  explicit Working(const DeferredDevice& device) : device_(device), lock_(device.mutex_) {
    Protect(PROT_READ | PROT_WRITE);
  }
  ~Working() { Protect(PROT_NONE); }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  // In whole huge pages, which would otherwise be split.
  void Protect(int protection) const {
    const std::size_t used = RoundUp(device_.used_, kHugePage);
    if (used != 0 && mprotect(device_.memory_, used, protection) != 0) std::abort();
  }
  const DeferredDevice& device_;
  const std::scoped_lock<std::recursive_mutex> lock_;
};

DeferredDevice::DeferredDevice() {
  mapped_ = mmap(nullptr, kDeviceBytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::runtime_error("no addresses for a device");
  memory_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<std::uintptr_t>(mapped_), kHugePage));
  madvise(memory_, kDeviceBytes, MADV_HUGEPAGE);  // where there are none, it only takes longer
}

DeferredDevice::~DeferredDevice() { munmap(mapped_, kDeviceBytes + kHugePage); }

// Never the same twice: what is used too long finds what it was overwritten with. Each in pages of its own.
std::byte* DeferredDevice::Allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::byte* address = memory_ + used_;
  used_ += RoundUp<std::size_t>(std::max<std::size_t>(bytes, 1), 4096);
  if (used_ > kDeviceBytes) throw Error(ErrorCode::kResourceExhausted, "the device that is played is full");
  return address;
}

OpenReloadStream DeferredDevice::Opener() {
  return [this](const Device&) { return std::make_shared<DeferredStream>(*this); };
}

// What was queued before and is not done yet comes after it: whoever waits too little finds other bytes.
void DeferredDevice::Carry(const RegionView& from, std::byte* to) {
  const Working working(*this);
  Pack(from, to);
}

bool DeferredDevice::Has(const std::byte* address, std::size_t bytes) const {
  const std::scoped_lock lock(mutex_);
  return address >= memory_ && address + bytes <= memory_ + used_;
}

std::byte* DeferredStream::Memory::Allocate(std::size_t bytes) {
  std::byte* address = stream_.device_.Allocate(bytes);
  ++stream_.device_.allocations_;
  const std::scoped_lock lock(stream_.device_.mutex_);
  stream_.device_.given_bytes_ += bytes;
  stream_.device_.peak_bytes_ = std::max(stream_.device_.peak_bytes_, stream_.device_.given_bytes_);
  stream_.Fill(address, kFresh, bytes);
  return address;
}

void DeferredStream::Memory::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  const std::scoped_lock lock(stream_.device_.mutex_);
  stream_.device_.given_bytes_ -= bytes;
  stream_.Fill(address, kGone, bytes);
}

std::byte* DeferredStream::Pinned::Allocate(std::size_t bytes) {
  ++stream_.device_.allocations_;
  return blocks_.emplace_back(std::max<std::size_t>(bytes, 1), kFresh).data();
}

void DeferredStream::Pinned::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  std::fill_n(address, bytes, kGone);
}

bool DeferredStream::Pinned::Has(const std::byte* address, std::size_t bytes) const {
  return std::ranges::any_of(blocks_, [&](const std::vector<std::byte>& block) {
    return address >= block.data() && address + bytes <= block.data() + block.size();
  });
}

// Memory of ours, or pinned: anything else a device does not reach, or only by waiting.
void DeferredStream::ExpectReachable(const std::byte* address, std::size_t bytes) const {
  if (device_.Has(address, bytes) || pinned_.Has(address, bytes)) return;
  throw std::logic_error("a device was given memory that it does not reach");
}

void DeferredStream::ExpectWord(const std::uint64_t* fault) const {
  ExpectReachable(reinterpret_cast<const std::byte*>(fault), sizeof(*fault));
  ExpectAligned(fault, sizeof(*fault));
}

void DeferredStream::Queue(std::function<void()> work) {
  queue_.push_back(std::move(work));
  ++queued_;
}

DeferredStream::Ticket DeferredStream::Record() {
  Queue([] {});
  return queued_;
}

void DeferredStream::Wait(Ticket ticket) {
  if (done_ >= ticket) return;
  ++device_.waits_;
  const DeferredDevice::Working working(device_);
  for (; done_ < ticket; ++done_) {
    queue_.front()();
    queue_.pop_front();
  }
}

void DeferredStream::Copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  ExpectReachable(from, bytes);
  ExpectReachable(to, bytes);
  if (pinned_.Has(to, bytes) && device_.Has(from, bytes)) device_.bytes_brought_ += bytes;
  if (from < to + bytes && to < from + bytes) throw std::logic_error("a device was given a copy onto itself");
  Queue([=] { std::memcpy(to, from, bytes); });
}

void DeferredStream::Pack(const RegionView& view, std::byte* to) {
  if (view.num_bytes() == 0) return;
  ExpectReachable(view.base, (view.rows - 1) * view.stride + view.row_bytes);
  ExpectReachable(to, view.num_bytes());
  Queue([=] { layercast::Pack(view, to); });
}

void DeferredStream::Fill(std::byte* to, std::byte value, std::size_t bytes) {
  ExpectReachable(to, bytes);
  Queue([=] { std::fill_n(to, bytes, value); });
}

void DeferredStream::Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk,
                             std::int64_t first, std::int64_t count, std::uint64_t* fault) {
  ExpectReachable(packed, static_cast<std::size_t>(count) * Size(from));
  ExpectReachable(to, 1);
  ExpectAligned(packed, Size(from));
  ExpectAligned(to, Size(to_dtype));
  if (from != to_dtype) ExpectWord(fault);
  Queue([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::byte* value = packed + static_cast<std::size_t>(i) * Size(from);
      std::byte* place = to + static_cast<std::size_t>(walk.At(first + i)) * Size(to_dtype);
      if (from == to_dtype) {
        std::memcpy(place, value, Size(from));
      } else if (!Cast(from, value, to_dtype, place, 1)) {
        *fault = std::min<std::uint64_t>(*fault, EncodeCudaCastFault({i, ElementValue(from, value, 0)}));
      }
    }
  });
}

void DeferredStream::Gather(DType dtype, const std::byte* from, const Walk& walk, std::int64_t first,
                            std::int64_t count, std::byte* packed) {
  ExpectReachable(from, 1);
  ExpectReachable(packed, static_cast<std::size_t>(count) * Size(dtype));
  ExpectAligned(from, Size(dtype));
  ExpectAligned(packed, Size(dtype));
  Queue([=] {
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(packed + static_cast<std::size_t>(i) * Size(dtype),
                  from + static_cast<std::size_t>(walk.At(first + i)) * Size(dtype), Size(dtype));
    }
  });
}

void DeferredStream::Zero(DType dtype, std::byte* to, const Walk& walk) {
  ExpectReachable(to, 1);
  ExpectAligned(to, Size(dtype));
  Queue([=] {
    for (std::int64_t i = 0; i < walk.num_elements(); ++i) {
      std::fill_n(to + static_cast<std::size_t>(walk.At(i)) * Size(dtype), Size(dtype), std::byte{0});
    }
  });
}

// By the CPU's recipe, made anew: whoever asked may have given up the one that it asked with.
void DeferredStream::Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                              const AmaxInput& amax, std::span<const KernelTensorView> outputs, std::uint64_t* fault) {
  ExpectReachable(rows.data, 1);
  ExpectWord(fault);
  if (!amax.rows.empty()) {
    ExpectReachable(reinterpret_cast<const std::byte*>(amax.rows.data()), amax.rows.size_bytes());
    ExpectAligned(amax.rows.data(), sizeof(float));
  }
  if (!IsKernelDType(rows.dtype) && first_row != 0)
    throw std::logic_error("a device was given a piece of a dtype without a kernel");
  const bool of_whole_amax = recipe.Needs(ShardAxis::kRows) == AmaxNeed::kTensor;
  if (of_whole_amax && amax.tensor < 0 && rows.rows != outputs.front().rows) {
    throw std::logic_error("a device was given a piece without the whole weight's magnitude");
  }
  const std::vector<TensorSpec> specs = recipe.KernelTensors(rows.dtype, outputs.front().rows, rows.cols);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (specs[i].num_bytes() == 0) continue;
    ExpectReachable(outputs[i].data, static_cast<std::size_t>(specs[i].num_bytes()));
    if (specs[i].dtype == DType::kF32) ExpectAligned(outputs[i].data, sizeof(float));
  }
  const std::shared_ptr<const Recipe> same = MakeRecipe(recipe.name(), recipe.options());
  const std::vector<KernelTensorView> views(outputs.begin(), outputs.end());
  Queue([=, this] {
    try {
      same->Quantize(rows, first_row, amax, views, pool_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt) throw;
      *fault = std::min(*fault, WordOf(rows, first_row, pool_));
    }
  });
}

void DeferredStream::Rescale(std::span<std::byte> codes, float from, float to) {
  ExpectReachable(codes.data(), codes.size());
  Queue([=, this] { layercast::Rescale(Codes(codes), from, to, pool_); });
}

void DeferredStream::RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) {
  ExpectReachable(codes.data(), codes.size());
  ExpectReachable(scales.data(), scales.size());
  Queue([=, this] { layercast::RescaleNvfp4(Codes(codes), Codes(scales), from, to, pool_); });
}

void DeferredStream::Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                                std::byte* values) {
  const std::int64_t cols = tensors[0].cols * (recipe.format().elements == DType::kF4 ? 2 : 1);
  const std::vector<TensorSpec> specs = recipe.KernelTensors(dtype, tensors[0].rows, cols);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ExpectReachable(tensors[i].data, static_cast<std::size_t>(specs[i].num_bytes()));
    if (specs[i].dtype == DType::kF32) ExpectAligned(tensors[i].data, sizeof(float));
  }
  ExpectReachable(values, static_cast<std::size_t>(NumBytes(dtype, {tensors[0].rows, cols})));
  ExpectAligned(values, Size(dtype));
  const std::shared_ptr<const Recipe> same = MakeRecipe(recipe.name(), recipe.options());
  const std::vector<KernelTensorView> views(tensors.begin(), tensors.end());
  Queue([=, this] { layercast::Dequantize(same->Read(views), dtype, values, pool_); });
}

void DeferredStream::NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) {
  const auto size = static_cast<std::size_t>(count);
  ExpectReachable(from, size * Size(dtype));
  ExpectAligned(from, Size(dtype));
  ExpectReachable(reinterpret_cast<const std::byte*>(to), size * sizeof(float));
  ExpectAligned(to, sizeof(float));
  Queue([=] {
    Cast(dtype, from, DType::kF32, reinterpret_cast<std::byte*>(to), size);
    std::transform(to, to + size, to, NegatedExponential);
  });
}

void DeferredStream::FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax,
                              std::uint64_t* fault) {
  ExpectReachable(from, static_cast<std::size_t>(count) * Size(dtype));
  ExpectReachable(reinterpret_cast<const std::byte*>(amax), sizeof(*amax));
  ExpectAligned(amax, sizeof(*amax));
  ExpectWord(fault);
  Queue([=, this] {
    const MatrixView elements{dtype, from, 1, count, 0};
    const ScanResult scan = Scan(elements, pool_);
    *amax = std::max(*amax, scan.amax);
    if (scan.first_non_finite >= 0) *fault = std::min(*fault, WordOf(elements, 0, pool_));
  });
}

void DeferredStream::FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                                  std::uint64_t* fault) {
  constexpr KeptAxes kOuter = 0b001, kOuterAndLast = 0b101;
  const TensorSpec spec{"", dtype, {split.outer, split.reduced, split.last}};
  ExpectReachable(from, static_cast<std::size_t>(spec.num_bytes()));
  ExpectReachable(reinterpret_cast<const std::byte*>(amax),
                  static_cast<std::size_t>(split.outer * split.last) * sizeof(*amax));
  ExpectAligned(amax, sizeof(*amax));
  ExpectWord(fault);
  Queue([=, this] { std::ranges::copy(AmaxOver(spec, from, split.last == 1 ? kOuter : kOuterAndLast, pool_), amax); });
}

void DeferredStream::LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) {
  if (bytes != 0) ExpectReachable(from, bytes);
  ExpectReachable(reinterpret_cast<const std::byte*>(leaves), NumLeaves(bytes) * sizeof(Digest));
  ExpectAligned(leaves, alignof(Digest));
  Queue([=] {
    for (std::size_t leaf = 0; leaf < NumLeaves(bytes); ++leaf) {
      const std::size_t begin = leaf * kLeafBytes;
      leaves[leaf] = DigestOf({from + begin, std::min(kLeafBytes, bytes - begin)});
    }
  });
}

void DeferredStream::FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) {
  ExpectReachable(from, static_cast<std::size_t>(count) * Size(dtype));
  ExpectAligned(from, Size(dtype));
  ExpectWord(fault);
  Queue([=, this] {
    const MatrixView elements{dtype, from, 1, count, 0};
    if (Scan(elements, pool_).first_non_finite >= 0) *fault = std::min(*fault, WordOf(elements, 0, pool_));
  });
}

std::unique_ptr<TestDevice> MakeTestDevice(std::string& /*why*/) { return std::make_unique<DeferredDevice>(); }

}  // namespace layercast::testing
