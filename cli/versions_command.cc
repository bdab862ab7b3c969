// layercast versions: lists the versions that a publisher keeps, or a store has, pins them, or evicts them; checks a
// store's.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/wrapped.h"
#include "layercast/publisher.h"
#include "layercast/store/store.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

constexpr std::chrono::milliseconds kStoredLook{100};  // how often a publisher is asked what it has stored

// "2026-11-29 02:25:17 UTC"
std::string TimeText(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

const char* DurabilityText(Durability durability) {
  switch (durability) {
    case Durability::kWaiting: return "waiting";
    case Durability::kStored: return "stored";
    case Durability::kLeftOut: return "left_out";
    case Durability::kNone: break;
  }
  return nullptr;
}

Json KeptJson(const KeptVersion& kept) {
  const auto since = std::chrono::duration<double>(kept.published.time_since_epoch());
  const char* const durable = DurabilityText(kept.durability);
  return {{"version", VersionToJson(kept.version)},
          {"durable", durable == nullptr ? Json() : Json(durable)},
          {"run", kept.run.empty() ? Json() : Json(kept.run)},
          {"mode", kept.mode == PublishMode::kStream ? "stream" : "snapshot"},
          {"bytes", kept.bytes},
          {"added_bytes", kept.added_bytes},
          {"readers", kept.readers},
          {"published", since.count()},
          {"pinned", kept.pinned},
          {"evicted", kept.evicted},
          {"shadowed", kept.shadowed}};
}

Json ListJson(const VersionList& list) {
  Json json = {{"retained_versions", list.retained_versions},
               {"retained_bytes", list.retained_bytes},
               {"memory_bytes", list.memory_bytes},
               {"versions", Json::array()}};
  for (const KeptVersion& kept : list.versions) json["versions"].push_back(KeptJson(kept));
  return json;
}

// The first line of a list: of how much there is, and where.
std::string SumText(const VersionList& list, bool of_store) {
  std::string text = std::to_string(list.versions.size()) + " versions in " + std::to_string(list.memory_bytes) +
                     " bytes of " + (of_store ? "files" : "memory");
  if (of_store) return text;
  text += "; the newest " + std::to_string(list.retained_versions) + " are kept";
  if (list.retained_bytes != 0) text += ", of at most " + std::to_string(list.retained_bytes) + " bytes";
  return text;
}

std::string ListText(const VersionList& list, bool of_store) {
  std::string text = SumText(list, of_store) + '\n';
  for (const KeptVersion& kept : list.versions) {
    text += "  " + VersionText(VersionToJson(kept.version)) + ", " + std::to_string(kept.bytes) + " bytes (" +
            std::to_string(kept.added_bytes) + " of its own), " + std::to_string(kept.readers) + " readers, " +
            TimeText(kept.published);
    if (!kept.run.empty()) text += ", run " + Quote(kept.run);
    if (kept.mode == PublishMode::kStream) text += ", a stream";
    if (kept.durability == Durability::kWaiting) text += ", not in the store yet";
    if (kept.durability == Durability::kLeftOut) text += ", left out of the store";
    if (kept.durability == Durability::kStored) text += ", stored";
    if (kept.pinned) text += ", pinned";
    if (kept.shadowed) text += ", shadowed by a later run";
    if (kept.evicted) text += ", evicted";
    text += '\n';
  }
  return text;
}

class Versions final : public Subcommand {
 public:
  const char* name() const override { return "versions"; }
  const char* description() const override {
    return "Lists, pins or evicts the versions that a publisher keeps or a store has; checks a store's";
  }

  void Declare(CLI::App& app) override {
    app.add_option("action", action_, "What to do")
        ->check(OneOf({"list", "pin", "unpin", "evict", "wait", "check"}))
        ->capture_default_str();
    CLI::Option* const publisher =
        app.add_option("--publisher", publisher_, "Endpoint of the publisher")->check(Endpoint());
    app.add_option("--store", store_, "The folder of a durable store, in place of a publisher")->excludes(publisher);
    app.add_option("--version", version_, "LINEAGE@STEP, or 8 or more digits of its digest");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    const bool names_one = action_ != "list" && action_ != "check";
    if (!names_one && !version_.empty()) throw UsageError("--version is for pin, unpin, evict and wait");
    if (names_one && version_.empty()) throw UsageError("versions " + action_ + ": expected --version, got none");
    if (publisher_.empty() && store_.empty()) throw UsageError("expected --publisher or --store, got neither");
    if (action_ == "check") return Check(output);
    if (action_ == "wait" && publisher_.empty()) throw UsageError("versions wait: expected --publisher, got --store");
    const VersionList list =
        store_.empty() ? Do(RemotePublisher(publisher_, keys_.options(), timeout_.duration())) : Do(Store(store_));
    output.Print(ListJson(list), Wrapped(ListText(list, !store_.empty())));
  }

 private:
  template <class Keeper>
  VersionList Do(const Keeper& keeper) const {
    VersionList list = keeper.Versions();
    if (action_ == "list") return list;
    const Version version = list.Named(version_).version;
    if (action_ == "evict") return keeper.Evict(version);
    if (action_ == "wait") return Await(keeper);
    return keeper.Pin(version, action_ == "pin");
  }

  // Asks until the publisher has written the version into its store.
  template <class Keeper>
  VersionList Await(const Keeper& keeper) const {
    const Deadline deadline = timeout_.deadline();
    for (;;) {
      VersionList list = keeper.Versions();
      const KeptVersion& kept = list.Named(version_);
      if (kept.durability == Durability::kStored) return list;
      if (kept.durability != Durability::kWaiting) {
        throw Error(ErrorCode::kFailedPrecondition,
                    kept.version.ToString() + (kept.durability == Durability::kNone
                                                   ? " is not stored: its publisher has no store"
                                                   : " was left out of the store: the publisher's log says why"));
      }
      if (deadline.Passed()) {
        throw Error(ErrorCode::kDeadlineExceeded,
                    publisher_ + " has not written " + kept.version.ToString() + " into its store in time");
      }
      std::this_thread::sleep_for(std::min(kStoredLook, deadline.Remaining()));
    }
  }

  // Reads a store's every byte.
  void Check(Output& output) const {
    if (store_.empty()) throw UsageError("versions check: expected --store, got --publisher");
    Json versions = Json::array();
    std::string text;
    std::size_t wrong = 0;
    for (const CheckedVersion& checked : Store(store_).Check()) {
      versions.push_back({{"version", checked.version}, {"wrong", checked.wrong}});
      text += "  " + checked.version + (checked.wrong.empty() ? ": as it was published" : ":") + '\n';
      for (const std::string& what : checked.wrong) text += "    " + what + '\n';
      wrong += checked.wrong.empty() ? 0 : 1;
    }
    output.Print({{"ok", wrong == 0}, {"versions", std::move(versions)}},
                 Wrapped(std::to_string(wrong) + " versions with wrong bytes\n" + text));
    if (wrong > 0)
      throw Error(ErrorCode::kCorrupt, store_ + ": " + std::to_string(wrong) + " versions have wrong bytes");
  }

  std::string action_ = "list";
  std::string publisher_;
  std::string store_;
  std::string version_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeVersions() { return std::make_unique<Versions>(); }

}  // namespace layercast::cli
