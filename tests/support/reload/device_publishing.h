// Both ends of a device's data plane in one program: a channel that copies from and to device memory, a publisher whose
// tensors lie there, and a rank that takes versions there.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/receive/stager.h"
#include "src/session/offer/offer_service.h"
#include "tests/support/reload/device_rig.h"
#include "tests/support/session/other_transport.h"
#include "trainer_side/snapshot.h"

namespace layercast::testing {

// inproc, but for that it copies from and to wherever it is told, a device's memory too: what cuda_ipc and nccl do.
class DeviceInproc final : public OtherTransport {
 public:
  // `brought`: bytes of versions.
  DeviceInproc(TestDevice& device, std::size_t& brought) : device_(device), brought_(brought) {}
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<Giver>(honest_->Offering(options));
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<End>(honest_->Connect(address, deadline), *this);
  }

 private:
  class Giver final : public OfferingEnd {
   public:
    explicit Giver(std::unique_ptr<OfferingEnd> honest) : honest_(std::move(honest)) {}
    std::string address() const override { return honest_->address(); }
    bool reads_from(const Device& device) const override { return device.kind == Device::Kind::kCuda; }
    void Add(const Offer& offer) override { honest_->Add(offer); }
    void Remove(std::uint64_t offer_id) override { honest_->Remove(offer_id); }

   private:
    const std::unique_ptr<OfferingEnd> honest_;
  };
  class End final : public FetchingEnd {
   public:
    End(std::unique_ptr<FetchingEnd> attached, const DeviceInproc& transport)
        : attached_(std::move(attached)), transport_(transport) {}
    bool attaches() const override { return false; }
    bool writes_to(const Device& device) const override { return device.kind == Device::Kind::kCuda; }
    void Submit(const ChunkRequest& request) override {
      under_way_[request.ticket] = {request.offer_id, request.destination.data()};
      if (request.offer_id != kProbeOffer) transport_.brought_ += request.destination.size();
      attached_->Submit(request);
    }
    std::optional<ChunkCompletion> Poll(Deadline deadline) override {
      std::optional<ChunkCompletion> completion = attached_->Poll(deadline);
      while (completion && completion->ticket == kRead) completion = attached_->Poll(deadline);
      if (!completion) return completion;
      auto [offer, at] = under_way_.extract(completion->ticket).mapped();
      for (RegionView& view : completion->views) {
        transport_.device_.Carry(view, at);
        view = PackedAt(at, view.row_bytes, view.rows);
        at += view.num_bytes();
      }
      // By inproc's lock the publisher knows that these bytes were read, where ThreadSanitizer sees it.
      attached_->Submit({.ticket = kRead, .offer_id = offer, .regions = {}, .destination = {}});
      return completion;
    }
    void Close() noexcept override { attached_->Close(); }

   private:
    static constexpr std::uint64_t kRead = ~std::uint64_t{0};

    const std::unique_ptr<FetchingEnd> attached_;
    const DeviceInproc& transport_;
    std::map<std::uint64_t, std::pair<std::uint64_t, std::byte*>> under_way_;  // offer and destination
  };

  TestDevice& device_;
  std::size_t& brought_;
};

// One rank that takes versions over it.
class DeviceRank {
 public:
  DeviceRank(TestDevice& device, const DeviceRigOptions& options, MemoryResource& host,
             const std::string& failpoints = {})
      : options_(options),
        memory_(device, *RigModel(options.model), options),
        captured_(memory_.Adopt()),
        failpoints_(failpoints),
        stager_(RigModel(options.model), options.model.parallel, {options.model.recipe}, captured_,
                Options(options, host), failpoints_, report_, Transports(device)) {}

  // Throws what staging threw.
  void Reload(const std::string& publisher, std::uint64_t step) {
    stager_.Open(FromPublisher(publisher, "run", step), step, {});
    staged_ = stager_.Receive();
    stager_.committer().Commit();
    stager_.committer().Forget();
  }
  ServedBytes Served() const {
    ServedBytes served;
    for (const CapturedBuffer& buffer : captured_.buffers()) served[buffer.name] = captured_.Read(buffer);
    return served;
  }
  bool ServesWhatItStaged() const { return captured_.ServedDigest() == staged_.digest; }
  Stager& stager() { return stager_; }
  std::size_t brought() const { return brought_; }
  std::uint64_t layers() const { return report_.layers; }  // of the last reload

 private:
  static ReceiverOptions Options(const DeviceRigOptions& options, MemoryResource& host) {
    ReceiverOptions receiver;
    receiver.threads = 1;
    receiver.chunk_bytes = options.chunk_bytes;
    receiver.layer_memory = &host;
    receiver.timeout = std::chrono::seconds(30);
    return receiver;
  }
  std::vector<std::unique_ptr<Transport>> Transports(TestDevice& device) {
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<DeviceInproc>(device, brought_));
    return transports;
  }

  const DeviceRigOptions options_;
  std::size_t brought_ = 0;
  DeviceEngine memory_;
  const CapturedBuffers captured_;
  FailPoints failpoints_;
  ReloadReport report_;
  Stager stager_;
  StagedVersion staged_;
};

// A trainer whose weights lie on the device, in memory that it goes on writing.
class DevicePublisher {
 public:
  DevicePublisher(TestDevice& device, MemoryResource& arena) : device_(device), arena_(arena) {
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<DeviceInproc>(device, brought_));
    service_.emplace(OfferServiceOptions{.endpoint = "tcp://127.0.0.1:0", .name = "publisher"}, pool_, failpoints_,
                     &tensors_, std::move(transports));
  }
  ~DevicePublisher() { service_->Stop(); }
  DevicePublisher(const DevicePublisher&) = delete;
  DevicePublisher& operator=(const DevicePublisher&) = delete;

  std::string endpoint() const { return service_->endpoint(); }
  DeviceTensors& tensors() { return tensors_; }

  // What is on the device: all, or all but every third tensor behind the first.
  std::vector<NamedTensor> Place(const Weights& weights, bool all = true) {
    std::vector<NamedTensor> tensors;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      NamedTensor named = weights.at(i);
      if (all || i % 3 != 2) {
        const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
        std::byte* const there = device_.Allocate(bytes);
        device_.Carry(AsView({named.tensor.data, bytes}), there);
        named.tensor.data = there;
        named.tensor.device = device_.device();
      }
      tensors.push_back(std::move(named));
    }
    return tensors;
  }
  Snapshot Take(const std::vector<NamedTensor>& tensors, std::uint64_t step, bool borrowed, bool keeps_on_device) {
    const layercast::Weights weights{.specs = {},
                                     .walk = [&](std::span<const std::string>) { return MakeWeightsIterator(tensors); },
                                     .borrowed = borrowed};
    return TakeSnapshot(
        {.lineage = "run", .step = step}, weights, nullptr,
        {.host = arena_, .device = tensors_, .keeps = [=](const Device&) { return keeps_on_device; }, .pool = pool_});
  }
  void Publish(const std::vector<NamedTensor>& tensors, std::uint64_t step, bool borrowed) {
    const Snapshot& taken = taken_.emplace_back(Take(tensors, step, borrowed, service_->carries(device_.device())));
    const Offer offer{.id = service_->NextOfferId(), .tensors = taken.tensors, .device = taken.device};
    service_->Offer(std::make_shared<OfferedVersion>(taken.manifest, offer, borrowed));
  }
  void PublishStream(std::vector<NamedTensor> tensors, std::uint64_t step) {
    std::vector<ManifestEntry> entries;
    for (const NamedTensor& named : tensors) {
      entries.push_back({.spec = {named.name, named.tensor.dtype, named.tensor.shape}, .digest = {}, .amax = -1});
    }
    service_->Offer(std::make_shared<OfferedVersion>(
        Manifest("run", step, std::move(entries)),
        [tensors](std::span<const std::string>) { return MakeWeightsIterator(tensors); }, false));
  }

 private:
  TestDevice& device_;
  MemoryResource& arena_;
  WorkerPool pool_{1};
  FailPoints failpoints_;
  std::size_t brought_ = 0;
  DeviceTensors tensors_{device_.Opener(), pool_};
  std::deque<Snapshot> taken_;  // go after the service
  std::optional<OfferService> service_;
};

}  // namespace layercast::testing
