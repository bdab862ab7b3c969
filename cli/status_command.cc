// layercast status: what an engine serves, or what a publisher offers, right now.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "cli/arguments/arguments.h"
#include "cli/arguments/delta_text.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/read_answer.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/wrapped.h"
#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"
#include "src/control/rpc.h"
#include "src/control/watch/peers_json.h"
#include "src/session/ask/publisher_status.h"

namespace layercast::cli {
namespace {

// One channel: that of all ranks, or that of one rank if they differ.
std::string ChannelText(const Json& channel) {
  const std::string of_rank = channel.contains("rank") ? " of rank " + channel["rank"].dump() : "";
  return "  last channel" + of_rank + " " + channel.value("name", "?") + ", " + RateText(channel.at("gb_per_s")) +
         "; when chosen " + RateText(channel.at("probed_gb_per_s")) + ": " + Escaped(channel.value("reason", "")) +
         "\n";
}

// " with noise 0.01"; empty: none, or an engine that knows nothing of noise.
std::string NoiseText(const Json& status) {
  const Json noise = status.value("noise", Json());
  return noise.is_object() ? " with noise " + noise.at("sigma").dump() : "";
}

// What stands behind the engine's state. A torn engine serves nothing; the text below it says more.
std::string Served(const Json& status) {
  if (!status.at("version").is_null()) return " " + VersionText(status["version"]) + NoiseText(status);
  return status.at("torn").is_null() ? " its first version" : "";
}

std::string OfTotal(const Json& progress, const std::string& what) {
  const std::string total = progress.at(what + "_total") == 0 ? "?" : progress[what + "_total"].dump();
  return progress.at(what).dump() + " of " + total + " " + what;
}

// "receive, 1234 of 5678 bytes, 12 of 30 layers"
std::string HowFar(const Json& progress) {
  const auto stage = progress.at("stage").get<std::string>();
  return Escaped(stage.empty() ? "not begun" : stage) + ", " + OfTotal(progress, "bytes") + ", " +
         OfTotal(progress, "layers");
}

std::string Seconds(double milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", milliseconds * 1e-3);
  return text;
}

// What is said of the reload that an engine is at, by `progress` of its status. Empty if that is null: there is none.
std::string ProgressText(const Json& progress) {
  if (!progress.is_object()) return "";
  const Json& version = progress.at("version");
  std::string text = "  loads " + (version.is_object() ? Escaped(RunAt(VersionFromJson(version))) : "a version") +
                     " since " + Seconds(progress.at("elapsed_ms").get<double>()) + ": " + HowFar(progress) + "\n";
  for (const Json& rank : progress.at("ranks"))
    text += "    rank " + rank.at("rank").dump() + ": " + HowFar(rank) + "\n";
  return text;
}

// Of the version that was on trial last. Empty if none was.
std::string TrialText(const Json& trial) {
  if (!trial.is_object()) return "";
  std::string text = "  trial of " + VersionText(trial.at("version")) + " in place of " +
                     VersionText(trial.at("before")) + ": " + Escaped(trial.at("state").get<std::string>());
  if (trial.at("left_ms").is_number()) text += ", " + Seconds(trial["left_ms"].get<double>()) + " left";
  const Json& error = trial.at("error");
  return text + (error.is_object() ? ", " + EscapedMessage(error.value("message", "")) : "") + "\n";
}

std::string EngineText(const Json& status) {
  std::string text = status.at("state").get<std::string>() + Served(status) + ", " +
                     std::to_string(status.at("pids").size()) + " ranks, quantization " +
                     status.at("quantization").get<std::string>() + "\n";
  for (const Json& rank : status.at("ranks")) {
    text += "  rank " + rank.at("rank").dump() + " (process " + rank.at("pid").dump() + "): serves " +
            rank.at("served_digest").get<std::string>() + "\n";
  }
  text += ProgressText(status.value("progress", Json()));
  const Json& torn = status.at("torn");
  if (torn.is_object() && torn.at("to").is_null()) {
    text += "  lost the weights of " + VersionText(torn.at("from")) + " with a rank's process\n";
  } else if (torn.is_object()) {
    text += "  torn between " + VersionText(torn.at("from")) + " and " + VersionText(torn.at("to")) + "\n";
  }
  text += TrialText(status.value("trial", Json()));
  const Json& channel = status.at("channel");
  if (channel.is_object()) {
    for (const Json& one : channel.value("ranks", Json::array({channel}))) text += ChannelText(one);
    if (channel.at("warning").is_string())
      text += "  warning: " + Escaped(channel["warning"].get<std::string>()) + "\n";
  }
  const Json last_report = status.value("last_report", Json());
  if (last_report.is_object()) text += DeltaText(last_report.value("delta", Json()));
  const Json& error = status.at("last_error");
  if (error.is_object()) text += "  last reload failed: " + EscapedMessage(error.value("message", "")) + "\n";
  return text;
}

// What all that a publisher keeps takes of its memory; null: a relay or a lender, which keeps nothing of its own.
Json MemoryOf(const std::string& publisher, const Keys& keys, Deadline deadline) {
  try {
    return AskVersions(publisher, keys, wire::VersionsRequest{}, deadline).memory_bytes;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return nullptr;
  }
}

std::string PartText(const Json& part) {
  if (part.at("ranks") == 1) return "";
  return ", part " + part.at("rank").dump() + " of " + part.at("ranks").dump();
}

std::string RunText(const Json& run) { return run.is_null() ? "" : ", run " + Quote(run.get<std::string>()); }

std::string ReaderText(const Json& reader) {
  const auto quoted = [&](const char* name) { return Quote(reader.at(name).get<std::string>()); };  // a peer's words
  std::string text = "    " + quoted("engine") + " rank " + reader.at("rank").dump();
  if (reader.at("takes_from").is_string()) text += " takes from " + quoted("takes_from");
  if (reader.at("relays_at").is_string()) text += ", relays at " + quoted("relays_at");
  if (reader.at("bytes") != 0) text += ", has " + reader["bytes"].dump() + " bytes, " + RateText(reader.at("gb_per_s"));
  return text + "\n";
}

std::string PublisherText(const Json& status) {
  const Json& memory = status.at("memory_bytes");
  std::string text = "publishing, " + status.at("readers").dump() + " readers" +
                     (memory.is_null() ? "" : ", " + memory.dump() + " bytes of memory") + "\n";
  for (const Json& version : status.at("versions")) {
    text += "  " + VersionText(version.at("version")) + ", " + version.at("mode").get<std::string>() + ", " +
            version.at("tensors").dump() + " tensors, " + version.at("bytes").dump() + " bytes" +
            PartText(version.at("part")) + RunText(version.at("run")) + "\n";
    for (const Json& reader : version.at("receivers")) text += ReaderText(reader);
  }
  return text;
}

class Status final : public Subcommand {
 public:
  const char* name() const override { return "status"; }
  const char* description() const override { return "Tells what an engine serves, or what a publisher offers"; }

  void Declare(CLI::App& app) override {
    CLI::Option* engine = app.add_option("--engine", engine_, "Endpoint of an engine")->check(Endpoint());
    app.add_option("--publisher", publisher_, "Endpoint of a publisher")->check(Endpoint())->excludes(engine);
    app.add_flag("--wait", wait_, "Waits until the engine serves a version, or the publisher offers one");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    if (engine_.empty() == publisher_.empty()) throw UsageError("expected --engine or --publisher");
    const Deadline deadline = timeout_.deadline();
    if (!publisher_.empty()) {
      const auto ask = [&] {
        Json status = PublisherToJson(AskPublisherStatus(publisher_, keys_.keys(), deadline));
        status["memory_bytes"] = MemoryOf(publisher_, keys_.keys(), deadline);
        return status;
      };
      const Json status = Ask(ask, deadline);
      return output.Print(status, Wrapped(PublisherText(status)));
    }
    RpcClient engine("engine", engine_, keys_.keys());
    const Json status = Ask([&] { return engine.Call("status", Json::object(), deadline); }, deadline);
    output.Print(status, Wrapped(ReadAnswer(engine_, [&] { return EngineText(status); })));
  }

 private:
  // The answer, with --wait the first one that has a version.
  template <typename Call>
  Json Ask(const Call& call, Deadline deadline) const {
    constexpr std::chrono::milliseconds kBetweenAsking{100};
    Json status = call();
    for (; wait_ && status.at("version").is_null(); status = call()) {
      if (deadline.Remaining() <= kBetweenAsking) {
        throw Error(ErrorCode::kDeadlineExceeded,
                    (engine_.empty() ? "publisher " + publisher_ : "engine " + engine_) +
                        ": expected a version in time, got none: " + status.at("state").get<std::string>());
      }
      std::this_thread::sleep_for(kBetweenAsking);
    }
    return status;
  }

  std::string engine_;
  std::string publisher_;
  bool wait_ = false;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeStatus() { return std::make_unique<Status>(); }

}  // namespace layercast::cli
