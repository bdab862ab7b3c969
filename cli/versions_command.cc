// layercast versions: lists the versions that a publisher keeps, pins them, or evicts them.
#include <ctime>
#include <memory>
#include <string>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/wrapped.h"
#include "layercast/publisher.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

// "2026-11-29 02:25:17 UTC"
std::string TimeText(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

Json KeptJson(const KeptVersion& kept) {
  const auto since = std::chrono::duration<double>(kept.published.time_since_epoch());
  return {{"version", VersionToJson(kept.version)},
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

std::string ListText(const VersionList& list) {
  std::string text =
      std::to_string(list.versions.size()) + " versions in " + std::to_string(list.memory_bytes) + " bytes of memory";
  text += "; the newest " + std::to_string(list.retained_versions) + " are kept";
  if (list.retained_bytes != 0) text += ", of at most " + std::to_string(list.retained_bytes) + " bytes";
  text += '\n';
  for (const KeptVersion& kept : list.versions) {
    text += "  " + VersionText(VersionToJson(kept.version)) + ", " + std::to_string(kept.bytes) + " bytes (" +
            std::to_string(kept.added_bytes) + " of its own), " + std::to_string(kept.readers) + " readers, " +
            TimeText(kept.published);
    if (!kept.run.empty()) text += ", run " + Quote(kept.run);
    if (kept.mode == PublishMode::kStream) text += ", a stream";
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
  const char* description() const override { return "Lists, pins or evicts the versions that a publisher keeps"; }

  void Declare(CLI::App& app) override {
    app.add_option("action", action_, "What to do")
        ->check(OneOf({"list", "pin", "unpin", "evict"}))
        ->capture_default_str();
    app.add_option("--publisher", publisher_, "Endpoint of the publisher")->check(Endpoint())->required();
    app.add_option("--version", version_, "LINEAGE@STEP, or 8 or more digits of its digest");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    if (action_ == "list" && !version_.empty()) throw UsageError("--version is for pin, unpin and evict");
    if (action_ != "list" && version_.empty())
      throw UsageError("versions " + action_ + ": expected --version, got none");
    const RemotePublisher publisher(publisher_, keys_.options(), timeout_.duration());
    const VersionList list = Do(publisher);
    output.Print(ListJson(list), Wrapped(ListText(list)));
  }

 private:
  VersionList Do(const RemotePublisher& publisher) const {
    VersionList list = publisher.Versions();
    if (action_ == "list") return list;
    const Version version = list.Named(version_).version;
    if (action_ == "evict") return publisher.Evict(version);
    return publisher.Pin(version, action_ == "pin");
  }

  std::string action_ = "list";
  std::string publisher_;
  std::string version_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeVersions() { return std::make_unique<Versions>(); }

}  // namespace layercast::cli
