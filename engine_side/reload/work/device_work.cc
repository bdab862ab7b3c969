#include "engine_side/reload/work/device_work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "engine_side/reload/layout/captured_on_device.h"
#include "engine_side/reload/layout/strided.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/log.h"
#include "src/base/rounding.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

constexpr std::size_t kPackedAtOnce = std::size_t{1} << 20;  // bytes that one thread packs at a time
constexpr std::size_t kFewestWords = 64;
constexpr std::size_t kWideLoad = 16;  // bytes: from other addresses, kernels read element by element

std::size_t WholeBytesOf(DType dtype) {
  const int bits = BitsPerElement(dtype);
  LAYERCAST_CHECK(bits % 8 == 0);
  return static_cast<std::size_t>(bits) / 8;
}

// Copies bytes [first, first + bytes) of a view's packed bytes to `to`.
void PackPart(const RegionView& view, std::size_t first, std::size_t bytes, std::byte* to) {
  while (bytes != 0) {
    const std::size_t in_row = first % view.row_bytes;
    const std::size_t count = std::min(bytes, view.row_bytes - in_row);
    std::memcpy(to, view.row(first / view.row_bytes) + in_row, count);
    first += count;
    bytes -= count;
    to += count;
  }
}

const char* ProblemOf(CudaFault::Kind kind) {
  switch (kind) {
    case CudaFault::Kind::kNan: return "expected finite values, got NaN";
    case CudaFault::Kind::kInfinity: return "expected finite values, got infinity";
    case CudaFault::Kind::kMinusInfinity: return "expected finite values, got -infinity";
    case CudaFault::Kind::kAboveAmax: return "got a magnitude above the one that came with it";
  }
  return "got a wrong value";
}

}  // namespace

DeviceWork::DeviceWork(ReloadStream& stream, WorkerPool& pool, std::size_t block_bytes)
    : stream_(stream),
      pool_(pool),
      layer_memory_(stream.memory(), ServedBy::kSameSize),
      pinned_memory_(stream.pinned(), ServedBy::kSameSize),
      chunks_(stream),
      uploads_(stream, block_bytes),
      download_(stream, block_bytes) {
  uploads_.Open();  // before a channel's kernels run and wait for their peers
  download_.Open();
}

DeviceWork::~DeviceWork() { WaitQuietly(); }

// Whether the view shows a chunk on the device. Channels pack what they put there.
bool DeviceWork::IsChunk(const RegionView& view) const {
  if (!chunks_.Has(view.base)) return false;
  LAYERCAST_CHECK(view.rows <= 1 || view.stride == view.row_bytes);
  return true;
}

// Bytes [first, first + bytes) of a view, packed, at an address that the stream can copy from.
const std::byte* DeviceWork::ForCopying(const RegionView& view, std::size_t first, std::size_t bytes) {
  if (IsChunk(view)) return view.base + first;
  std::byte* const pinned = uploads_.Take(bytes).pinned;
  Pack(view, first, bytes, pinned);
  return pinned;
}

// Bytes [first, first + bytes) of a view, packed, at an address where kernels can read elements of that alignment.
const std::byte* DeviceWork::ForKernels(const RegionView& view, std::size_t first, std::size_t bytes,
                                        std::size_t alignment) {
  const bool on_device = IsChunk(view);
  const std::byte* const from = view.base + first;
  if (on_device && reinterpret_cast<std::uintptr_t>(from) % alignment == 0) return from;
  const UploadRing::Slot slot = uploads_.Take(bytes);
  if (!on_device) Pack(view, first, bytes, slot.pinned);
  stream_.Copy(on_device ? from : slot.pinned, slot.device, bytes);
  return slot.device;
}

void DeviceWork::Pack(const RegionView& view, std::size_t first, std::size_t bytes, std::byte* to) {
  pool_.For(CeilDivide(bytes, kPackedAtOnce), [&](std::size_t job) {
    const std::size_t begin = job * kPackedAtOnce;
    PackPart(view, first + begin, std::min(kPackedAtOnce, bytes - begin), to + begin);
  });
}

void DeviceWork::Read(const RegionView& view, ReadView read) {
  if (!chunks_.Has(view.base)) return read(view);
  Buffer pinned(pinned_memory_, view.num_bytes());
  stream_.Copy(view.base, pinned.data(), view.num_bytes());
  last_read_ = stream_.Record();
  const RegionView copy = PackedAt(pinned.data(), view.row_bytes, view.rows);
  reads_.push_back({std::move(pinned), copy, std::move(read)});
}

void DeviceWork::AwaitReads() {
  if (reads_.empty()) return;
  stream_.Wait(last_read_);
  for (const Awaited& awaited : std::exchange(reads_, {})) awaited.read(awaited.copy);
}

void DeviceWork::Write(const RegionView& view, std::byte* to) {
  const std::size_t bytes = view.num_bytes();
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(uploads_.block_bytes(), bytes - done);
    stream_.Copy(ForCopying(view, done, count), to + done, count);
    done += count;
  }
}

void DeviceWork::Zero(const TensorSpec& spec, const Box& box, std::byte* memory) {
  if (box.num_elements() != 0) stream_.Zero(spec.dtype, memory, Walk::Into(spec.shape, box));
}

// A contiguous run of elements that needs no cast is copied straight to its place. All others are scattered by a
// kernel, from a chunk on the device or from a block of the upload ring.
void DeviceWork::FuseAndShard(const SourcePiece& from, const RegionView& view, std::byte* memory) {
  const Piece& piece = from.piece;
  LAYERCAST_CHECK(view.num_bytes() == piece.end - piece.begin);
  if (BitsPerElement(from.dtype) % 8 != 0) return CopyWhole(piece, view, memory);
  const TensorSpec& parameter = from.parameter;
  const Walk walk = Walk::Into(parameter.shape, from.placement.destination, from.placement.order);
  const std::size_t size = WholeBytesOf(from.dtype);
  const std::size_t most = uploads_.block_bytes() / size;
  const std::size_t elements = view.num_bytes() / size;
  for (std::size_t done = 0; done < elements;) {
    const std::size_t count = std::min(most, elements - done);
    const auto first = static_cast<std::int64_t>(piece.begin / size + done);
    if (from.dtype == parameter.dtype && walk.IsOneRun(first, static_cast<std::int64_t>(count))) {
      std::byte* const to = memory + static_cast<std::size_t>(walk.At(first)) * size;
      stream_.Copy(ForCopying(view, done * size, count * size), to, count * size);
    } else {
      const std::byte* const packed = ForKernels(view, done * size, count * size, size);
      stream_.Scatter(from.dtype, packed, parameter.dtype, memory, walk, first, static_cast<std::int64_t>(count),
                      from.dtype == parameter.dtype ? nullptr : WordForCast(from, static_cast<std::int64_t>(done)));
    }
    done += count;
  }
}

// Plans place elements that share bytes only as whole tensors and in their own order.
void DeviceWork::CopyWhole(const Piece& piece, const RegionView& view, std::byte* memory) {
  for (std::size_t done = 0; done < view.num_bytes();) {
    const std::size_t count = std::min(uploads_.block_bytes(), view.num_bytes() - done);
    stream_.Copy(ForCopying(view, done, count), memory + piece.begin + done, count);
    done += count;
  }
}

void DeviceWork::Quantize(const Recipe& recipe, const MatrixView& matrix, const AmaxInput& amax,
                          std::span<const KernelTensorView> outputs, const PlacedMatrix& place) {
  Buffer row_amax;
  stream_.Quantize(recipe, matrix, 0, OnDevice(amax, row_amax, place), outputs, WordForWeight(place, matrix.cols));
}

// Rows are quantized from a chunk on the device, or from the upload ring.
void DeviceWork::QuantizeArrived(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                                 const AmaxInput& amax, std::span<const KernelTensorView> outputs,
                                 const PlacedMatrix& place) {
  Buffer row_amax;
  const AmaxInput there = OnDevice(amax, row_amax, place);
  std::uint64_t* const word = WordForWeight(place, rows.cols);
  const auto row_bytes = static_cast<std::size_t>(rows.cols * BitsPerElement(rows.dtype) / 8);
  const RegionView view{rows.data, row_bytes, static_cast<std::size_t>(rows.rows),
                        static_cast<std::size_t>(rows.row_stride)};
  const auto unit = static_cast<std::size_t>(recipe.row_granularity());
  const auto most = static_cast<std::int64_t>(uploads_.block_bytes() / (unit * row_bytes) * unit);
  LAYERCAST_CHECK(most > 0);
  for (std::int64_t done = 0; done < rows.rows; done += most) {
    const std::int64_t count = std::min(most, rows.rows - done);
    const std::size_t first = static_cast<std::size_t>(done) * row_bytes;
    const std::byte* const from = ForKernels(view, first, static_cast<std::size_t>(count) * row_bytes, kWideLoad);
    stream_.Quantize(recipe, {rows.dtype, from, count, rows.cols, static_cast<std::int64_t>(row_bytes)},
                     first_row + done, there, outputs, word);
  }
}

void DeviceWork::CheckStored(const TensorSpec& spec, std::span<const std::byte> tensor, const PlacedMatrix& place) {
  if (tensor.empty() || BitsPerElement(spec.dtype) % 8 != 0) return;  // elements that share bytes are all finite
  const std::int64_t cols = spec.shape.empty() ? 1 : spec.shape.back();
  stream_.FindNonFinite(spec.dtype, tensor.data(), spec.num_elements(), WordForWeight(place, cols));
}

void DeviceWork::CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) {
  if (exponents.empty()) return;
  stream_.FindNonFinite(DType::kF8E8M0, exponents.data(), static_cast<std::int64_t>(exponents.size()),
                        WordFor([place](CudaFaultWord word) { ThrowNanExponent(place, DecodeCudaFault(word).index); }));
}

AmaxInput DeviceWork::OnDevice(const AmaxInput& amax, Buffer& rows, const PlacedMatrix& place) {
  const bool good = std::isfinite(amax.tensor) &&
                    std::ranges::all_of(amax.rows, [](float row) { return std::isfinite(row) && row >= 0.0F; });
  if (!good) {
    throw Error(ErrorCode::kCorrupt, place.ToString() + ": a largest magnitude came as NaN, infinite or negative");
  }
  if (amax.rows.empty()) return amax;
  rows = Buffer(layer_memory_, amax.rows.size_bytes());
  Write(AsView(std::as_bytes(amax.rows)), rows.data());
  return {.tensor = amax.tensor, .rows = {reinterpret_cast<const float*>(rows.data()), amax.rows.size()}};
}

// A fault word for a call that checks values. All words are reset when a layer's first is asked for. Their number grows
// to what the largest layer needs.
std::uint64_t* DeviceWork::WordFor(Complaint complaint) {
  LayerChecks& checks = checks_[current_];
  const std::size_t index = checks.complaints.size();
  const std::size_t needed = (index + 1) * sizeof(CudaFaultWord);
  if (needed > checks.words.size()) {
    const std::size_t bytes = std::max(2 * checks.words.size(), kFewestWords * sizeof(CudaFaultWord));
    Buffer words(stream_.memory(), bytes);
    Buffer fetched(stream_.pinned(), bytes);  // both are there, or neither grows
    stream_.Fill(words.data(), std::byte{0xFF}, bytes);
    if (index != 0) stream_.Copy(checks.words.data(), words.data(), index * sizeof(CudaFaultWord));
    checks.words = std::move(words);
    checks.fetched = std::move(fetched);
  } else if (index == 0) {
    stream_.Fill(checks.words.data(), std::byte{0xFF}, checks.words.size());
  }
  checks.complaints.push_back(std::move(complaint));
  return reinterpret_cast<std::uint64_t*>(checks.words.data()) + index;
}

// For a cast of elements of a piece, from its element number `first` on.
std::uint64_t* DeviceWork::WordForCast(const SourcePiece& piece, std::int64_t first) {
  return WordFor([piece, first](CudaFaultWord word) {
    const CudaCastFault fault = DecodeCudaCastFault(word);
    ThrowWrongElement(piece, first + fault.index, fault.value);
  });
}

std::uint64_t* DeviceWork::WordForWeight(const PlacedMatrix& place, std::int64_t cols) {
  return WordFor([place, cols](CudaFaultWord word) {
    const CudaFault fault = DecodeCudaFault(word);
    ThrowWrongWeight(place, fault.index / cols, fault.index % cols, ProblemOf(fault.kind));
  });
}

std::vector<std::span<const std::byte>> DeviceWork::ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                             Buffer& memory) {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += RoundUp(tensor.size(), kMemoryAlignment);
  memory = Buffer(pinned_memory_, bytes);
  std::vector<std::span<const std::byte>> read;
  std::size_t offset = 0;
  for (const auto& tensor : tensors) {
    read.push_back(memory.span().subspan(offset, tensor.size()));
    if (!tensor.empty()) stream_.Copy(tensor.data(), memory.data() + offset, tensor.size());
    offset += RoundUp(tensor.size(), kMemoryAlignment);
  }
  stream_.Wait(stream_.Record());
  return read;
}

void DeviceWork::CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) {
  if (to.empty()) return;
  if (!IsOnDevice(from)) {
    std::vector<std::byte> bytes(to.size());
    ReadCaptured(from, bytes);
    return Write(AsView(bytes), to.data());
  }
  if (IsPacked(from)) return stream_.Copy(from.address, to.data(), to.size());
  const Walk walk = WalkOver(from).value();
  stream_.Gather(from.dtype, from.address, walk, 0, walk.num_elements(), to.data());
}

void DeviceWork::CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) {
  if (tensor.empty()) return;
  stream_.FindNonFinite(spec.dtype, tensor.data(), spec.num_elements(),
                        WordFor([layer, name = spec.name](CudaFaultWord word) {
                          ThrowWrongDerived(layer, name, DecodeCudaFault(word).index);
                        }));
}

void DeviceWork::EndLayer(std::function<void()> close) {
  LayerChecks& checks = checks_[current_];
  const std::size_t bytes = checks.complaints.size() * sizeof(CudaFaultWord);
  if (bytes != 0) stream_.Copy(checks.words.data(), checks.fetched.data(), bytes);
  checks.close = std::move(close);
  checks.arrived = stream_.Record();
  current_ = (current_ + 1) % checks_.size();
  CheckAndClose(checks_[current_]);
}

void DeviceWork::CheckAndClose(LayerChecks& checks) {
  stream_.Wait(checks.arrived);
  const std::vector<Complaint> complaints = std::exchange(checks.complaints, {});
  for (std::size_t i = 0; i < complaints.size(); ++i) {
    CudaFaultWord word = kNoCudaFault;
    std::memcpy(&word, checks.fetched.data() + i * sizeof(word), sizeof(word));
    if (word != kNoCudaFault) complaints[i](word);
  }
  if (const std::function<void()> close = std::exchange(checks.close, nullptr)) close();
}

void DeviceWork::Finish() {
  for (LayerChecks& checks : checks_) CheckAndClose(checks);
  stream_.Wait(stream_.Record());
  layer_memory_.ReleaseIdle();  // pinned memory is kept: a channel's kernels may run when it is asked for again
}

void DeviceWork::Drop() {
  WaitQuietly();
  reads_.clear();
  for (LayerChecks& checks : checks_) {
    checks.complaints.clear();
    checks.close = nullptr;
  }
  download_.Drop();
}

void DeviceWork::ReleaseMemory() {
  layer_memory_.Release();
  pinned_memory_.Release();
  chunks_.ReleaseIdle();
  stream_.ReleaseFreed();
}

// Waits for everything that is queued, because it uses pinned memory. Logs errors instead of throwing them.
void DeviceWork::WaitQuietly() noexcept {
  try {
    stream_.Wait(stream_.Record());
  } catch (const std::exception& error) {
    log::error("waiting for the device: {}", error.what());
  }
}

}  // namespace layercast
