#include "tests/conformance/published_bytes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#if LAYERCAST_HAVE_CUDA
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "tests/support/fakes/fake_ipc.h"
#endif
#if LAYERCAST_HAVE_NCCL
#include "src/device/cuda/cuda_probe.h"
#include "src/transport/nccl/nccl_transport.h"
#include "tests/support/fakes/fake_channel_device.h"
#include "tests/support/fakes/fake_nccl.h"
#endif
#if LAYERCAST_HAVE_UCX
#include "src/transport/all/transports.h"
#include "src/transport/ucx/ucx_transport.h"
#include "tests/support/fakes/counted_one_sided.h"
#include "tests/support/fakes/fake_one_sided.h"
#include "tests/support/fakes/posix_one_sided.h"
#endif

namespace layercast::test {

namespace {

#if LAYERCAST_HAVE_NCCL
constexpr std::size_t kFakePieceBytes = std::size_t{4} << 20;  // so that the suite's chunks come in several pieces

// NCCL takes only one end on each GPU: publishers are on the first one, receivers on the second.
class NcclBetweenGpus final : public Transport {
 public:
  std::string_view name() const override { return "nccl"; }
  std::string WhyNotHere() const override {
    return ProbeCuda().devices < 2 ? "there are no two GPUs" : first_->WhyNotHere();
  }
  std::chrono::milliseconds connect_time() const override { return first_->connect_time(); }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return first_->Offering(options);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return second_->Connect(address, deadline);
  }

 private:
  const std::unique_ptr<Transport> first_ = MakeNcclTransport(std::optional(0));
  const std::unique_ptr<Transport> second_ = MakeNcclTransport(std::optional(1));
};

CountedTransport MakeFakeNccl() {
  const auto library = std::make_shared<FakeNccl>();
  return {MakeNcclTransport([library] {
            return nccl_channel::NcclParts{
                .library = library, .device = std::make_shared<FakeChannelDevice>(), .piece_bytes = kFakePieceBytes};
          }),
          [library] { return library->bytes_sent.load(); }};
}
#endif

#if LAYERCAST_HAVE_CUDA
// Counts all copies. The publisher copies an offer in before anybody asks, so what is copied after that is what
// receivers take.
CountedTransport MakeFakeCudaIpc(bool legacy) {
  const auto device = std::make_shared<FakeChannelDevice>();
  return {MakeCudaIpcTransport([device, legacy] {
            const auto driver = std::make_shared<FakeIpc>(device);
            driver->has_vmm = driver->has_events = !legacy;
            return cuda_ipc_channel::CudaIpcParts{driver, device};
          }),
          [device] { return device->bytes_copied.load(); }};
}
#endif

#if LAYERCAST_HAVE_UCX
CountedTransport MakeUcxReads(std::shared_ptr<const ucx_channel::OneSided> one_sided) {
  const auto bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  return {MakeUcxTransport({std::make_shared<CountedOneSided>(std::move(one_sided), bytes), true}),
          [bytes] { return bytes->load(); }};
}
#endif

}  // namespace

std::vector<std::string> TransportNames() {
  std::vector<std::string> names;
  for (const auto& transport : AllTransports()) {
    if (transport->name() == "ucx") names.insert(names.end(), {std::string(kFakeReads), std::string(kPosixReads)});
    const std::string name(transport->name());
    if (name == "nccl") names.emplace_back(kFakeNccl);
    if (name == "cuda_ipc") names.insert(names.end(), {std::string(kFakeCudaIpc), std::string(kFakeLegacyCudaIpc)});
    const bool needs_gpus = name == "nccl" || name == "cuda_ipc";
    if (!needs_gpus || TransportNamed(name)->WhyNotHere().empty()) names.push_back(name);
  }
  return names;
}

CountedTransport CountedTransportNamed(const std::string& name) {
#if LAYERCAST_HAVE_CUDA
  if (name == kFakeCudaIpc || name == kFakeLegacyCudaIpc) return MakeFakeCudaIpc(name == kFakeLegacyCudaIpc);
#endif
#if LAYERCAST_HAVE_NCCL
  if (name == kFakeNccl) return MakeFakeNccl();
  if (name == "nccl") return {std::make_unique<NcclBetweenGpus>(), nullptr};
#endif
#if LAYERCAST_HAVE_UCX
  if (name == kFakeReads) return MakeUcxReads(std::make_shared<FakeOneSided>());
  if (name == kPosixReads) return MakeUcxReads(MakePosixOneSided());
#endif
  for (std::unique_ptr<Transport>& transport : AllTransports()) {
    if (transport->name() == name) return {std::move(transport), nullptr};
  }
  throw std::runtime_error("no transport '" + name + "'");
}

std::unique_ptr<Transport> TransportNamed(const std::string& name) { return CountedTransportNamed(name).transport; }

PublishedBytes::PublishedBytes(OfferingEnd& end, std::uint64_t offer_id, std::span<const std::size_t> sizes,
                               std::uint64_t round)
    : end_(end) {
  MemoryResource& memory = end.arena() != nullptr ? *end.arena() : host_;
  offer_.id = offer_id;
  for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    Buffer& buffer = buffers_.emplace_back(memory, sizes[tensor]);
    for (std::size_t i = 0; i < sizes[tensor]; ++i) buffer.data()[i] = PatternByte(round, tensor, i);
    offer_.tensors.push_back({buffer.data(), sizes[tensor]});
  }
  end_.Add(offer_);
  offered_ = true;
}

PublishedBytes::~PublishedBytes() { Withdraw(); }

void PublishedBytes::Withdraw() {
  if (std::exchange(offered_, false)) end_.Remove(offer_.id);
}

void PublishedBytes::Overwrite(std::byte with) {
  for (const Buffer& buffer : buffers_) std::fill_n(buffer.data(), buffer.size(), with);
}

std::vector<std::byte> ExpectedBytes(std::span<const Region> regions, std::uint64_t round) {
  std::uint64_t total = 0;
  for (const Region& region : regions) total += region.num_bytes();
  std::vector<std::byte> bytes(total);
  std::byte* next = bytes.data();
  for (const Region& region : regions) {
    for (std::uint64_t row = 0; row < region.rows; ++row) {
      for (std::uint64_t i = 0; i < region.row_bytes; ++i) {
        *next++ = PatternByte(round, region.tensor, region.offset + row * region.stride + i);
      }
    }
  }
  return bytes;
}

std::vector<std::byte> BytesOf(const ChunkCompletion& completion) {
  std::size_t total = 0;
  for (const RegionView& view : completion.views) total += view.num_bytes();
  std::vector<std::byte> bytes(total);
  std::byte* next = bytes.data();
  for (const RegionView& view : completion.views) {
    Pack(view, next);
    next += view.num_bytes();
  }
  return bytes;
}

Fetch::Fetch(std::vector<Region> wanted) : regions(std::move(wanted)) {
  std::uint64_t bytes = 0;
  for (const Region& region : regions) bytes += region.num_bytes();
  destination.resize(bytes);
}

void Fetch::Submit(FetchingEnd& end, std::uint64_t ticket, std::uint64_t offer_id) {
  end.Submit({ticket, offer_id, regions, destination});
}

bool Fetch::IsRight(const ChunkCompletion& completion, std::uint64_t round) const {
  if (completion.views.size() != regions.size()) return false;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (completion.views[i].row_bytes != regions[i].row_bytes || completion.views[i].rows != regions[i].rows)
      return false;
  }
  const std::vector<std::byte> got = BytesOf(completion);
  const std::vector<std::byte> expected = ExpectedBytes(regions, round);
  return got.size() == expected.size() && (got.empty() || std::memcmp(got.data(), expected.data(), got.size()) == 0);
}

ChunkCompletion FetchOne(FetchingEnd& end, std::uint64_t offer_id, Fetch& fetch) {
  fetch.Submit(end, 1, offer_id);
  std::optional<ChunkCompletion> completion = end.Poll(Deadline::After(kPatience));
  if (!completion) throw std::runtime_error("no completion came");
  return *std::move(completion);
}

}  // namespace layercast::test
