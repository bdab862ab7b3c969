#include "engine_side/server/rank/rank_adapters.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "engine_side/model/naming/path.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/rank/comparison.h"
#include "engine_side/server/rank/slot_lending.h"
#include "layercast/captured_buffers.h"
#include "layercast/error.h"
#include "layercast/receiver.h"
#include "layercast/reload_source.h"
#include "src/base/utf8.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

// Memory of a device ends with its process. Memory of a file is zero while it is new: no slot holds anything.
bool OutlivesProcess(const MemoryResource& memory) { return memory.device().kind == Device::Kind::kHost; }

// The base's receiver and that of adapters each have an endpoint.
void CheckRelay(const std::string& endpoint) {
  if (endpoint.empty() || endpoint.ends_with(":0")) return;
  throw Error(ErrorCode::kInvalidArgument, "relay endpoint " + Quote(endpoint) +
                                               ": expected port 0 where there are adapter slots, because the base and "
                                               "adapters are served on at ports of their own");
}

AdapterSource SourceOf(const Json& params) {
  AdapterSource source;
  if (IsGiven(params, "weights_path")) source.path = params["weights_path"].get<std::string>();
  if (IsGiven(params, "publisher")) source.publishers = SplitEndpoints(params["publisher"].get<std::string>());
  source.name = params.value("adapter", std::string());
  source.lineage = params.value("lineage", std::string());
  if (IsGiven(params, "step")) source.step = params["step"].get<std::uint64_t>();
  return source;
}

// The ranks and scales of a slot, in the order of AdapterSlots::Numbers.
std::vector<AdapterNumbers> NumbersOf(const LoadedAdapter& loaded) {
  std::vector<AdapterNumbers> numbers;
  for (const LoadedAdapter::Term& term : loaded.terms) numbers.push_back({term.rank, term.scale});
  return numbers;
}

std::vector<std::vector<CapturedBuffer>> BuffersOf(const AdapterSlots& slots) {
  std::vector<std::vector<CapturedBuffer>> buffers;
  for (std::size_t slot = 0; slot < slots.sizes().slots; ++slot) buffers.push_back(slots.Buffers(slot));
  return buffers;
}

// What an adapter takes of a slot.
std::uint64_t BytesIn(const AdapterSlots& slots, std::size_t slot) {
  std::uint64_t bytes = 0;
  for (std::size_t term = 0; term < slots.terms().size(); ++term) {
    if (!slots.Has(slot, term)) continue;
    for (const std::span<const std::byte> factor : slots.Factors(term, slot)) bytes += factor.size();
  }
  return bytes;
}

Json ToJson(const LoadedAdapter& loaded) {
  std::int32_t largest = 0;
  for (const LoadedAdapter::Term& term : loaded.terms) largest = std::max(largest, term.rank);
  return {{"adapter", loaded.name},
          {"version", VersionToJson(loaded.version)},
          {"base", VersionToJson(loaded.base)},
          {"modules", loaded.modules},
          {"zero_modules", loaded.zero_modules},
          {"rank", largest},
          {"skipped", loaded.skipped},
          {"warnings", loaded.warnings},
          {"unused", loaded.unused},
          {"digest", loaded.digest.ToHex()},
          {"report", Json::parse(loaded.report.ToJson())}};
}

}  // namespace

RankAdapters::RankAdapters(const EngineOptions& options, const ParallelConfig& parallel, const BuildModel& build,
                           const Memory& memory, const ReceiverOptions& receiver)
    : RankAdapters(build(), options, parallel, build, memory, receiver) {}

RankAdapters::RankAdapters(std::unique_ptr<Module> model, const EngineOptions& options, const ParallelConfig& parallel,
                           const BuildModel& build, const Memory& memory, const ReceiverOptions& receiver)
    : options_(options),
      parallel_(parallel),
      build_(build),
      receiver_options_(receiver),
      slots_(AdapterTermsOf(*model, options.adapter_modules),
             {.slots = options.adapter_slots, .max_rank = options.max_adapter_rank, .dtype = options.adapter_dtype},
             memory.slots, OutlivesProcess(memory.slots) ? memory.slots : host_),
      failpoints_(FailPoints::FromEnvironment("rank" + std::to_string(parallel.engine_rank()))) {
  if (!OutlivesProcess(memory.slots)) {
    for (std::size_t slot = 0; slot < options.adapter_slots; ++slot) slots_.Clear(slot);
  }
  if (options.host_adapters > 0) {
    AdapterSlotSizes sizes = slots_.sizes();
    sizes.slots = HostCopiesFor(options.host_adapters);
    host_copies_.emplace(std::vector(slots_.terms().begin(), slots_.terms().end()), sizes, memory.host_copies,
                         memory.host_copies);
    copier_.emplace(CapturedBuffers::Adopt(slots_.Buffers(0)).OpenStream());
  }
  receiver_options_.on_progress = nullptr;  // which tells of the base
  CheckRelay(receiver.relay);
  receiver_ = ReceiverInto(slots_, std::move(model), receiver_options_);
  receiver_options_.relay.clear();  // what is loaded to be compared is not served on
  lent_.resize(options.adapter_slots + (host_copies_ ? host_copies_->sizes().slots : 0));
}

SlotCopier::Place RankAdapters::At(std::size_t place) {
  if (place < options_.adapter_slots) return {slots_, place};
  return {*host_copies_, place - options_.adapter_slots};
}

std::unique_ptr<AdapterReceiver> RankAdapters::ReceiverInto(const AdapterSlots& slots, std::unique_ptr<Module> model,
                                                            const ReceiverOptions& receiver) const {
  const AdapterOptions options{
      .max_rank = slots.sizes().max_rank, .modules = options_.adapter_modules, .dtype = slots.sizes().dtype};
  return std::make_unique<AdapterReceiver>(std::move(model), parallel_, options, BuffersOf(slots), receiver);
}

Json RankAdapters::Fill(const Json& params) {
  const auto slot = params.at("slot").get<std::size_t>();
  const auto load = params.at("load").get<std::uint64_t>();
  {
    const auto writing = lent_[slot].Write();  // ends what was lent of it
    slots_.Clear(slot);                        // whatever happens now, nobody computes with half of it
  }
  if (IsGiven(params, "lent")) return Take(slot, params["lent"], load);
  const LoadedAdapter loaded = receiver_->Load(slot, SourceOf(params), load);
  std::ranges::copy(NumbersOf(loaded), slots_.Numbers(slot).begin());
  Json found = ToJson(loaded);
  found["bytes"] = BytesIn(slots_, slot);
  return found;
}

Json RankAdapters::Move(const Json& params) {
  const auto to_place = params.at("to").get<std::size_t>();
  const SlotCopier::Place from = At(params.at("from").get<std::size_t>()), to = At(to_place);
  const auto writing = lent_[to_place].Write();  // ends what was lent of it
  copier_->Copy(from, to);
  if (failpoints_.Hit("adapter.move")) to.slots.Numbers(to.slot).back().scale += 1.0F;
  const auto expected = params.at("digests").at(static_cast<std::size_t>(parallel_.engine_rank())).get<std::string>();
  const std::string got = copier_->DigestOf(to).ToHex();
  if (got == expected) return Json::object();
  to.slots.Clear(to.slot);
  throw Error(ErrorCode::kCorrupt, "its copy is not what was loaded: expected digest " + expected + ", got " + got);
}

Json RankAdapters::Lend(const Json& places, WeightsLender& lender, const LenderOptions& options) {
  Json lent = Json::array();
  for (const Json& each : places) {
    const auto place = each.get<std::size_t>();
    const auto [slots, slot] = At(place);
    const std::vector<std::size_t> terms = TermsIn(slots, slot);
    CapturedBuffers buffers = BuffersToLend(slots, slot, terms, slots.Numbers(slot));
    const Digest digest = buffers.ServedDigest();
    lent_[place].Become(std::move(buffers));
    lender.Lend(lent_[place], LentAs(place), options);
    lent.push_back({{"place", place}, {"terms", terms}, {"lent_digest", digest.ToHex()}});
  }
  return lent;
}

// Takes what the same rank of another engine lends. It names the adapter as that one does, and what its load had found.
Json RankAdapters::Take(std::size_t slot, const Json& lent, std::uint64_t load) {
  const Json& twin = lent.at("ranks").at(static_cast<std::size_t>(parallel_.engine_rank()));
  std::vector<AdapterNumbers> numbers(slots_.numbers_of_slot());
  const CapturedBuffers buffers =
      BuffersToLend(slots_, slot, twin.at("terms").get<std::vector<std::size_t>>(), numbers);
  ReceiverOptions options = receiver_options_;
  options.engine += "/adapters";
  options.commit = CommitPolicy::kInPlace;  // nobody computes with the slot
  options.staging_memory = nullptr;
  Receiver receiver(TreeOfBuffers(buffers), parallel_, {}, buffers, options);
  const std::stop_callback give_up(taking_.Begin(load), [&] { receiver.Cancel(load); });
  const ReloadReport report = receiver.ReloadWeights(
      FromEngineRank(twin.at("endpoint").get<std::string>(), LentAs(twin.at("place").get<std::size_t>()),
                     Digest::FromHex(twin.at("lent_digest").get<std::string>()).value_or(Digest{})),
      load);
  std::ranges::copy(numbers, slots_.Numbers(slot).begin());
  const std::string digest = DigestOfSlot(slots_, slot).ToHex();
  if (const auto expected = twin.at("digest").get<std::string>(); digest != expected) {
    slots_.Clear(slot);
    throw Error(ErrorCode::kCorrupt, "adapter " + Quote(lent.at("name").get<std::string>()) +
                                         ": digest of the slot, as it was loaded, expected " + expected + ", got " +
                                         digest);
  }
  Json taken = lent.at("found");
  taken["digest"] = digest;
  taken["bytes"] = BytesIn(slots_, slot);
  taken["report"] = Json::parse(report.ToJson());
  taken["report"]["version"] = taken.at("version");
  return taken;
}

void RankAdapters::Cancel(std::uint64_t load) {
  receiver_->Cancel(load);
  taking_.Cancel(load);
}

Json RankAdapters::Compare(const Json& params) {
  const auto [slots, slot] = At(params.at("slot").get<std::size_t>());
  HostMemory memory;
  AdapterSlotSizes one = slots_.sizes();
  one.slots = 1;
  const AdapterSlots cold({slots_.terms().begin(), slots_.terms().end()}, one, memory, memory);
  ReceiverOptions beside = receiver_options_;
  beside.keys.allow_unsigned = true;  // what is loaded to be compared is served to nobody
  const std::vector<AdapterNumbers> numbers =
      NumbersOf(ReceiverInto(cold, build_(), beside)->Load(0, SourceOf(params)));

  Comparison comparison(parallel_.engine_rank());
  const CapturedBuffers served = CapturedBuffers::Adopt(slots.Buffers(slot));
  const CapturedBuffers expected = CapturedBuffers::Adopt(cold.Buffers(0));
  for (std::size_t i = 0; i < slots_.terms().size(); ++i) {
    const AdapterTerm& term = slots_.terms()[i];
    const std::size_t first = slots_.first_number(i), count = term.num_experts();
    const std::span<const AdapterNumbers> now = slots.Numbers(slot).subspan(first, count);
    const std::span<const AdapterNumbers> wanted = std::span(numbers).subspan(first, count);
    comparison.Add(JoinPath(term.layer, "rank_and_scale"), std::as_bytes(now), std::as_bytes(wanted));
    if (std::ranges::none_of(wanted, [](const AdapterNumbers& of) { return of.rank > 0; }))
      continue;  // nobody reads it
    for (const std::string& name : {term.AName(), term.BName()}) {
      comparison.Add(name, served.Read(*served.Find(name)), expected.Read(*expected.Find(name)));
    }
  }
  return std::move(comparison).ToJson();
}

}  // namespace layercast
