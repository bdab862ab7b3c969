#include "trainer_side/device_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "src/base/rounding.h"
#include "src/device/kernels/cuda_fault.h"
#include "src/tensor/kernel_dtypes.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

// As kernels leave it of one tensor.
struct Looked {
  float amax = 0.0F;
  std::uint32_t unused = 0;
  CudaFaultWord fault = kNoCudaFault;
};

}  // namespace

DeviceTensors::Place::Place(std::shared_ptr<DeviceStream> opened, std::mutex& mutex)
    : stream(std::move(opened)),
      copies(stream->memory(), mutex),
      scratch(stream->memory()),
      pinned(stream->pinned()),
      uploads(*stream, kBlockBytes),
      download(*stream, kBlockBytes) {
  uploads.Open();  // before a version of this publisher is on its way
  download.Open();
}

DeviceTensors::Place& DeviceTensors::On(const Device& device) {
  const auto place = places_.find(device.index);
  return place != places_.end() ? place->second
                                : places_.try_emplace(device.index, open_(device), mutex_).first->second;
}

DeviceTensors::Copies& DeviceTensors::CopiesOn(const Device& device) {
  const std::scoped_lock lock(mutex_);
  return On(device).copies;
}

Buffer DeviceTensors::CopyTo(const Device& device, const TensorView& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
  Copies& copies = CopiesOn(device);
  Buffer copy(copies, std::max<std::size_t>(bytes, 1));
  const std::scoped_lock lock(mutex_);
  Place& place = On(device);
  if (tensor.device == device) {
    if (bytes != 0) place.stream->Copy(tensor.data, copy.data(), bytes);
  } else {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t count = std::min(kBlockBytes, bytes - done);
      std::byte* const pinned = place.uploads.Take(count).pinned;
      std::memcpy(pinned, tensor.data + done, count);
      place.stream->Copy(pinned, copy.data() + done, count);
      done += count;
    }
  }
  place.stream->Wait(place.stream->Record());
  return copy;
}

std::vector<TensorSummary> DeviceTensors::SummariesOf(const Device& device, std::span<const NamedTensor> tensors) {
  const std::scoped_lock lock(mutex_);
  Place& place = On(device);
  std::vector<TensorSummary> summaries(tensors.size());
  Buffer looked(place.scratch, std::max<std::size_t>(tensors.size(), 1) * sizeof(Looked));
  Buffer seen(place.pinned, looked.size());
  const std::vector<Looked> fresh(tensors.size());
  std::memcpy(seen.data(), fresh.data(), tensors.size() * sizeof(Looked));
  place.stream->Copy(seen.data(), looked.data(), seen.size());
  DeviceDigests digests(*place.stream, place.download, place.scratch);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i].tensor;
    digests.Add(tensor.data, static_cast<std::size_t>(tensor.num_bytes()), summaries[i].digest);
    if (!IsKernelDType(tensor.dtype) || NumElements(tensor.shape) == 0) continue;
    std::byte* const of_tensor = looked.data() + i * sizeof(Looked);
    place.stream->FindAmax(tensor.dtype, tensor.data, NumElements(tensor.shape), reinterpret_cast<float*>(of_tensor),
                           reinterpret_cast<std::uint64_t*>(of_tensor + offsetof(Looked, fault)));
  }
  digests.Finish();
  place.stream->Copy(looked.data(), seen.data(), seen.size());
  place.stream->Wait(place.stream->Record());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Looked found;
    std::memcpy(&found, seen.data() + i * sizeof(Looked), sizeof(Looked));
    if (found.fault != kNoCudaFault) {
      ThrowNonFinite(tensors[i].name, tensors[i].tensor, DecodeCudaFault(found.fault).index);
    }
    summaries[i].amax = IsKernelDType(tensors[i].tensor.dtype) ? found.amax : SummaryByHost(place, tensors[i]).amax;
  }
  return summaries;
}

// Of types that no kernel looks through: few and small, or codes.
TensorSummary DeviceTensors::SummaryByHost(Place& place, const NamedTensor& named) {
  const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
  std::vector<std::byte> copy(bytes);
  ToHost(place, named.tensor.data, bytes, copy.data());
  TensorView tensor = named.tensor;
  tensor.data = copy.data();
  tensor.device = {};
  return SummaryOf(named.name, tensor, pool_);
}

void DeviceTensors::ToHost(const Device& device, const std::byte* from, std::size_t bytes, std::byte* to) {
  const std::scoped_lock lock(mutex_);
  ToHost(On(device), from, bytes, to);
}

void DeviceTensors::ToHost(Place& place, const std::byte* from, std::size_t bytes, std::byte* to) {
  try {
    place.download.Read(from, bytes, [&to](std::span<const std::byte> part) { to = std::ranges::copy(part, to).out; });
    place.download.Finish();
  } catch (...) {
    place.download.Drop();  // refers to `to`
    throw;
  }
}

// NaN and infinity were looked for when the snapshot was taken: the kernel's word is not read.
std::vector<float> DeviceTensors::AmaxOver(const Device& device, const TensorSpec& spec, const std::byte* data,
                                           KeptAxes kept) {
  CheckKept(spec.shape, kept);
  std::vector<float> amax(static_cast<std::size_t>(NumKept(spec.shape, kept)));
  if (spec.num_elements() == 0) return amax;
  if (!IsKernelDType(spec.dtype)) {
    std::vector<std::byte> copy(static_cast<std::size_t>(spec.num_bytes()));
    ToHost(device, data, copy.size(), copy.data());
    return layercast::AmaxOver(spec, copy.data(), kept, pool_);
  }
  const std::scoped_lock lock(mutex_);
  Place& place = On(device);
  const std::size_t bytes = amax.size() * sizeof(float);
  const Buffer found(place.scratch, RoundUp(bytes, sizeof(CudaFaultWord)) + sizeof(CudaFaultWord));
  place.stream->Fill(found.data(), std::byte{0}, found.size());
  place.stream->FindAxisAmax(spec.dtype, data, AxisSplit::Of(spec.shape, kept), reinterpret_cast<float*>(found.data()),
                             reinterpret_cast<std::uint64_t*>(found.data() + found.size() - sizeof(CudaFaultWord)));
  ToHost(place, found.data(), bytes, reinterpret_cast<std::byte*>(amax.data()));
  return amax;
}

// A chunk of one run of bytes is digested where it lies; others are packed first.
std::vector<Digest> DeviceTensors::DigestsOf(const Device& device, std::span<const std::vector<RegionView>> chunks) {
  const std::scoped_lock lock(mutex_);
  Place& place = On(device);
  std::vector<Digest> made(chunks.size());
  DeviceDigests digests(*place.stream, place.download, place.scratch);
  for (std::size_t i = 0; i < chunks.size(); ++i) digests.Add(chunks[i], made[i]);
  digests.Finish();
  return made;
}

}  // namespace layercast
