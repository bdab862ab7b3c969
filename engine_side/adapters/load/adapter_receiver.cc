#include "layercast/adapters/adapter_receiver.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "engine_side/adapters/load/adapter_placing.h"
#include "engine_side/adapters/load/base_copies.h"
#include "engine_side/adapters/load/offered_adapter.h"
#include "engine_side/reload/receive/attempt_stop.h"
#include "engine_side/reload/receive/one_at_a_time.h"
#include "layercast/captured_buffers.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "layercast/receiver.h"
#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/base/utf8.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/relay/relay.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

// A name's versions come into two slots by turns. Each filler has threads of its own.
constexpr std::size_t kFillers = 2;
using Clock = std::chrono::steady_clock;

constexpr const char* kText = "adapter.config";  // the parameter that takes the adapter's configuration

AdapterPart PartOf(const AdapterTerm& term, const AdapterOptions& options) {
  const auto buffer = [&](std::string name, Shape shape) {
    return CapturedBuffer{.name = std::move(name), .dtype = options.dtype, .shape = std::move(shape)};
  };
  return {.layer = term.layer,
          .shard = term.shard,
          .first_row = term.first_row,
          .a = buffer(term.AName(), term.AShape(options.max_rank)),
          .b = buffer(term.BName(), term.BShape(options.max_rank))};
}

// A slot's buffers by name, checked against the parts.
std::vector<CapturedBuffer> Checked(std::vector<CapturedBuffer> slot, std::span<const AdapterTerm> terms,
                                    const AdapterOptions& options, std::size_t number) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "adapter slot " + std::to_string(number) + ": " + what);
  };
  std::ranges::sort(slot, {}, &CapturedBuffer::name);
  const auto expect = [&](const CapturedBuffer& wanted) {
    const auto found = std::ranges::lower_bound(slot, wanted.name, {}, &CapturedBuffer::name);
    if (found == slot.end() || found->name != wanted.name)
      refuse("expected a buffer " + Quote(wanted.name) + ", got none");
    if (found->dtype == wanted.dtype && found->shape == wanted.shape) return;
    refuse(Quote(wanted.name) + ": expected " + Describe(wanted.dtype, wanted.shape) + ", got " +
           Describe(found->dtype, found->shape));
  };
  for (const AdapterTerm& term : terms) {
    const AdapterPart part = PartOf(term, options);
    expect(part.a);
    expect(part.b);
  }
  return slot;
}

// The device of the slots' memory, if it is one's.
std::optional<int> DeviceOf(std::span<const std::vector<CapturedBuffer>> slots) {
  for (const std::vector<CapturedBuffer>& slot : slots) {
    for (const CapturedBuffer& buffer : slot) {
      if (buffer.device.kind != Device::Kind::kHost) return buffer.device.index;
    }
  }
  return std::nullopt;
}

}  // namespace

class AdapterReceiver::Impl {
 public:
  Impl(std::unique_ptr<Module> base, const ParallelConfig& parallel, const AdapterOptions& options,
       std::vector<std::vector<CapturedBuffer>> slots, const ReceiverOptions& receiver)
      : base_(std::move(base)),
        parallel_(parallel),
        options_(options),
        receiver_options_(receiver),
        keys_(Keys::From(receiver.keys)),
        channels_(AllTransports(DeviceOf(slots), keys_)),
        failpoints_(FailPoints::FromEnvironment(RankName("rank"))),
        relay_failpoints_(FailPoints::FromEnvironment(RankName("relay"))) {
    if (base_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "an adapter receiver: expected a tree, got none");
    CheckFactors(options.max_rank, options.dtype);
    terms_ = AdapterTermsOf(*base_, options.modules);
    for (std::vector<CapturedBuffer>& slot : slots) {
      slots_.push_back(Checked(std::move(slot), terms_, options_, slots_.size()));
    }
    receiver_options_.engine += "/adapters";  // whose attempts are counted apart from those of the base
    receiver_options_.relay.clear();          // sessions are opened here, and know their slot's relay
    receiver_options_.keep_source = false;    // adapters are small, and come dense
    receiver_options_.staging_memory = receiver_options_.norm_memory = nullptr;
    receiver_options_.noise = NoiseUse::kOff;  // of a version that has a base too: it is on the base's norms
    if (!receiver.relay.empty()) OpenRelays(receiver);
  }

  LoadedAdapter Load(std::size_t slot, const AdapterSource& source, std::uint64_t attempt) {
    return calls_.Run("Load", [&] {
      if (slot >= slots_.size()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "adapter slot " + std::to_string(slot) + ": expected one of " + std::to_string(slots_.size()));
      }
      attempt_ = attempt != 0 ? attempt : attempt_ + 1;
      if (!relays_.empty()) relays_[slot]->Clear({ErrorCode::kNotFound, "this slot takes another adapter now"});
      const std::stop_token stop = stop_.Begin(attempt_);
      const auto begin = Clock::now();
      OfferedAdapter offered = FindAdapter(source, Asking(slot, stop));
      const std::chrono::duration<double, std::milli> found_in = Clock::now() - begin;
      AdapterPlacing placing =
          PlaceAdapter(*base_, {terms_, options_.max_rank, options_.dtype},
                       {offered.tensors, offered.own, offered.of_adapter, offered.config, offered.adapter});
      LoadedAdapter loaded = Fill(slot, source, offered, placing, stop);
      if (!source.publishers.empty()) loaded.report.stage_ms["connect"] = found_in.count();
      return loaded;
    });
  }

  void SetServed(CapturedBuffers served) { served_ = std::move(served); }

  void Cancel(std::uint64_t attempt) {
    stop_.Cancel(attempt);
    const std::lock_guard lock(mutex_);
    if (filling_ != nullptr) filling_->Cancel(attempt);
  }

 private:
  std::string RankName(const char* role) const { return role + std::to_string(parallel_.engine_rank()); }

  // What fills a slot with adapters of one form. A slot mostly gets one version after another of the same form, and
  // then the receiver keeps its plan.
  struct Filler {
    std::size_t slot;
    Recording recording;
    CommitPolicy policy;
    std::string text;         // where the configuration lands
    CapturedBuffers factors;  // what of the slot is filled
    std::optional<BaseCopies> copies{};
    std::unique_ptr<Receiver> receiver{};
  };

  // One relay for each slot, so that a version is served on until its slot gets another one.
  void OpenRelays(const ReceiverOptions& receiver) {
    relay_pool_.emplace(1);  // little is asked of it: digests are the publisher's
    const RelayOptions options{.endpoint = receiver.relay,
                               .keys = keys_,
                               .peer_timeout = receiver.peer_timeout,
                               .takers = receiver.relay_takers};
    while (relays_.size() < slots_.size()) {
      relays_.push_back(relays_.empty() ? std::make_unique<Relay>(options, *relay_pool_, relay_failpoints_)
                                        : relays_.front()->Beside());
    }
  }

  // For a session by which first is looked at what there is, and then a slot is filled.
  AskingRank Asking(std::size_t slot, const std::stop_token& stop) {
    // Each load arms them anew.
    session_failpoints_ = std::make_unique<FailPoints>(FailPoints::FromEnvironment(RankName("rank")));
    FetchOptions options;
    options.keys = keys_;
    options.channels = &channels_;
    options.layouts = &layouts_;
    options.channel = receiver_options_.channel;
    options.relay = relays_.empty() ? nullptr : relays_[slot].get();
    options.peer_timeout = receiver_options_.peer_timeout;
    options.stop = stop;
    return {.self = {.engine = receiver_options_.engine,
                     .attempt = attempt_,
                     .rank = parallel_.engine_rank(),
                     .ranks = parallel_.engine_size()},
            .options = options,
            .failpoints = *session_failpoints_,
            .deadline = Deadline::After(receiver_options_.timeout)};
  }

  LoadedAdapter Fill(std::size_t slot, const AdapterSource& source, OfferedAdapter& offered, AdapterPlacing& placing,
                     const std::stop_token& stop) {
    std::unique_ptr<Filler> filler = FillerOf(slot, offered, placing);
    const Filling filling(*this, *filler->receiver, stop);
    failpoints_.Hit("adapter.fill");
    filler->receiver->ReloadWeights(BytesOf(offered, source), attempt_);
    if (filler->copies) filler->copies->Check();
    if (filler->text != offered.config_text) {
      throw Error(ErrorCode::kCorrupt, "adapter " + Quote(offered.name) +
                                           ": its configuration is not what the version says: expected " +
                                           offered.config_text + ", got " + filler->text);
    }
    // The same wherever the adapter came from: of the factors alone.
    LoadedAdapter loaded = Loaded(offered, placing, filler->receiver->report(), filler->factors.ServedDigest());
    // A folder's adapter is called as the folder, as a checkpoint's version is.
    if (!source.path.empty()) loaded.version.lineage = std::filesystem::path(source.path).filename().string();
    loaded.report.version = loaded.version;
    if (!filler->copies) fillers_.push_back(std::move(filler));  // one that failed is not used again
    if (fillers_.size() > kFillers) fillers_.pop_front();
    return loaded;
  }

  // The slot's filler, if it is for adapters of this form, or a new one.
  std::unique_ptr<Filler> FillerOf(std::size_t slot, const OfferedAdapter& offered, AdapterPlacing& placing) {
    std::vector<CapturedBuffer> buffers = BuffersOf(slot, placing.recording);
    CapturedBuffers factors = CapturedBuffers::Adopt(buffers);
    if (offered.text) TakeText(*offered.text, offered.config_text, placing.recording);
    // A stream is walked once for all ranks, so none may leave between its beginning and its end, as in_place does.
    const CommitPolicy policy = offered.is_stream ? CommitPolicy::kStaged : CommitPolicy::kInPlace;
    const auto of_slot = std::ranges::find(fillers_, slot, [](const auto& filler) { return filler->slot; });
    if (of_slot != fillers_.end()) {
      std::unique_ptr<Filler> known = std::move(*of_slot);
      fillers_.erase(of_slot);
      if (known->policy == policy && known->recording == placing.recording) return known;
    }
    auto filler = std::make_unique<Filler>(Filler{.slot = slot,
                                                  .recording = placing.recording,
                                                  .policy = policy,
                                                  .text = std::string(offered.config_text.size(), '\0'),
                                                  .factors = std::move(factors)});
    if (offered.text) {
      buffers.push_back({.name = kText,
                         .address = reinterpret_cast<std::byte*>(filler->text.data()),
                         .dtype = DType::kU8,
                         .shape = placing.recording.sources[*offered.text].shape});
    }
    if (served_ && !offered.adapter.copies.empty()) {
      filler->copies.emplace(*base_, offered, *served_, placing.recording);
      buffers.insert(buffers.end(), filler->copies->buffers().begin(), filler->copies->buffers().end());
    }
    ReceiverOptions options = receiver_options_;
    options.commit = policy;
    filler->receiver = std::make_unique<Receiver>(placing.Tree(), parallel_, QuantizationConfig{},
                                                  CapturedBuffers::Adopt(std::move(buffers)), options);
    return filler;
  }

  std::vector<CapturedBuffer> BuffersOf(std::size_t slot, const Recording& recording) const {
    std::vector<CapturedBuffer> buffers;
    for (const RecordedParameter& parameter : recording.parameters) {
      buffers.push_back(*std::ranges::lower_bound(slots_[slot], parameter.spec.name, {}, &CapturedBuffer::name));
    }
    return buffers;
  }

  // Has the adapter's configuration, which the version's digest covers, come too.
  static void TakeText(std::uint32_t tensor, const std::string& text, Recording& recording) {
    const Shape shape = recording.sources[tensor].shape;
    if (shape != Shape{static_cast<std::int64_t>(text.size())}) {
      throw Error(ErrorCode::kCorrupt, Quote(recording.sources[tensor].name) + ": expected " +
                                           std::to_string(text.size()) + " bytes, got " + Describe(DType::kU8, shape));
    }
    recording.copies.push_back({.source = tensor,
                                .parameter = static_cast<std::uint32_t>(recording.parameters.size()),
                                .from = Box::Whole(shape),
                                .to = Box::Whole(shape)});
    recording.parameters.push_back({.spec = {kText, DType::kU8, shape}});
  }

  LoadedAdapter Loaded(const OfferedAdapter& offered, const AdapterPlacing& placing, const ReloadReport& report,
                       const Digest& factors) const {
    LoadedAdapter loaded{.name = offered.name,
                         .version = report.version,
                         .base = offered.base,
                         .terms = {},
                         .modules = offered.adapter.modules.size(),
                         .elsewhere = placing.elsewhere,
                         .warnings = offered.adapter.warnings,
                         .unused = offered.adapter.unused,
                         .zero_modules = *offered.zero_modules,
                         .digest = {},
                         .report = report};
    std::size_t number = 0;
    for (const AdapterTerm& term : terms_) {
      for (std::size_t expert = 0; expert < term.num_experts(); ++expert) {
        const AdapterNumbers& of = placing.numbers[number++];
        loaded.terms.push_back(
            {.a = term.AName(), .expert = static_cast<std::int64_t>(expert), .rank = of.rank, .scale = of.scale});
      }
    }
    for (const AdapterTensors::Copy& copy : offered.adapter.copies) {
      loaded.skipped.push_back(offered.own[copy.tensor].name);
      if (!served_) loaded.warnings.push_back(loaded.skipped.back() + " was not compared with what is served");
    }
    loaded.digest = SlotDigest(factors, placing.numbers);
    return loaded;
  }

  // Shows the receiver to Cancel while it is filling a slot.
  struct Filling {
    Filling(Impl& impl, Receiver& receiver, const std::stop_token& stop) : impl_(impl) {
      Show(&receiver);
      if (stop.stop_requested()) receiver.Cancel(impl.attempt_);  // before it could be seen
    }
    ~Filling() { Show(nullptr); }
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;

   private:
    void Show(Receiver* receiver) {
      const std::lock_guard lock(impl_.mutex_);
      impl_.filling_ = receiver;
    }
    Impl& impl_;
  };

  const std::unique_ptr<Module> base_;
  const ParallelConfig parallel_;
  const AdapterOptions options_;
  ReceiverOptions receiver_options_;
  std::vector<AdapterTerm> terms_;
  std::optional<CapturedBuffers> served_;           // the base's
  std::vector<std::vector<CapturedBuffer>> slots_;  // each sorted by name
  const Keys keys_;
  ChannelChooser channels_;
  LayoutsByPublisher layouts_;
  FailPoints failpoints_;
  std::unique_ptr<FailPoints> session_failpoints_;
  FailPoints relay_failpoints_;
  std::optional<WorkerPool> relay_pool_;
  std::vector<std::unique_ptr<Relay>> relays_;   // by slot; empty: this rank does not relay
  std::deque<std::unique_ptr<Filler>> fillers_;  // of the slots that were filled last, each of its own
  OneAtATime calls_;
  AttemptStop stop_;
  std::uint64_t attempt_ = 0;
  std::mutex mutex_;
  Receiver* filling_ = nullptr;  // guarded by mutex_
};

std::vector<AdapterPart> AdapterParts(const Module& model, const AdapterOptions& options) {
  CheckFactors(options.max_rank, options.dtype);
  std::vector<AdapterPart> parts;
  for (const AdapterTerm& term : AdapterTermsOf(model, options.modules)) parts.push_back(PartOf(term, options));
  return parts;
}

AdapterReceiver::AdapterReceiver(std::unique_ptr<Module> base, const ParallelConfig& parallel,
                                 const AdapterOptions& options, std::vector<std::vector<CapturedBuffer>> slots,
                                 const ReceiverOptions& receiver)
    : impl_(std::make_unique<Impl>(std::move(base), parallel, options, std::move(slots), receiver)) {}
AdapterReceiver::~AdapterReceiver() = default;
LoadedAdapter AdapterReceiver::Load(std::size_t slot, const AdapterSource& source, std::uint64_t attempt) {
  return impl_->Load(slot, source, attempt);
}
void AdapterReceiver::SetServed(CapturedBuffers served) { impl_->SetServed(std::move(served)); }
void AdapterReceiver::Cancel(std::uint64_t attempt) { impl_->Cancel(attempt); }

}  // namespace layercast
