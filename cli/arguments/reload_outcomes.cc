#include "cli/arguments/reload_outcomes.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "cli/arguments/arguments.h"
#include "cli/arguments/delta_text.h"
#include "cli/arguments/read_answer.h"
#include "cli/terminal/wrapped.h"
#include "layercast/report.h"
#include "src/base/run_at.h"
#include "src/base/utf8.h"
#include "src/control/engine_outcome.h"

namespace layercast::cli {
namespace {

std::string Milliseconds(double milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", milliseconds);
  return text;
}

// How much of one publisher's share came through relays. Empty if all of it came from the publisher itself.
std::string RelayedText(const Json& publisher) {
  const auto bytes = publisher.value("relayed_bytes", std::uint64_t{0});
  if (bytes == 0) return {};
  std::string relays;
  for (const Json& relay : publisher.at("relays"))
    relays += (relays.empty() ? "" : ", ") + Escaped(relay.get<std::string>());
  return "    " + std::to_string(bytes) + " of them from other engines: " + relays + "\n";
}

// What an engine that was late has not taken: "passed over 3 versions: run-17@41, run-17@42, run-17@43".
std::string PassedOverText(const Json& passed) {
  if (!passed.is_object() || passed.at("count") == 0) return "";
  const Json& versions = passed.at("versions");
  std::string names;
  Json run = nullptr;
  for (const Json& one : versions) {
    names += (names.empty() ? "" : ", ") + Escaped(RunAt(VersionFromJson(one.at("version"))));
    if (!one.at("run").is_null() && one["run"] != run) names += " (run " + Quote(one["run"].get<std::string>()) + ")";
    run = one["run"];
  }
  const std::string at_least = passed.at("complete").get<bool>() ? "" : "at least ";
  return "    passed over " + at_least + passed["count"].dump() + " versions" +
         (passed["count"] == versions.size() ? ": " : ", the last of them ") + names + "\n";
}

// Which version was replaced. Empty if there was none, or if it was the same.
std::string InPlaceOf(const Json& previous, const Json& version) {
  return previous.is_null() || previous == version ? "" : " in place of " + VersionText(previous);
}

// The stages' times, in the stages' order. Each is the longest that any rank took.
std::string StagesText(const Json& milliseconds) {
  std::string text;
  for (const char* stage : kReloadStages) {
    if (milliseconds.contains(stage))
      text += std::string("    ") + stage + " " + Milliseconds(milliseconds.at(stage).get<double>()) + "\n";
  }
  return text;
}

std::string ServesText(const Json& outcome) {
  std::string text = outcome.at("endpoint").get<std::string>() + ": ";
  if (outcome.at("ok").get<bool>()) {
    text += "serves " + VersionText(outcome.at("version")) + InPlaceOf(outcome.at("previous"), outcome.at("version")) +
            "\n";
  } else {
    const bool serves = outcome.at("version").is_object();
    text += (outcome.at("error").at("code") == "cancelled" ? "cancelled, " : "failed, ") +
            (serves ? "still serves " + VersionText(outcome.at("version"))
                    : std::string("and serves nothing that it told of (layercast status has more)")) +
            "\n";
  }
  return text;
}

std::string ReportText(const Json& outcome) {
  const Json& report = outcome.at("report");
  if (!report.is_object()) return "";
  // If the reload was refused before anything could move, a report of zeros says nothing.
  if (!outcome.at("ok").get<bool>() && report.value("bytes_total", std::uint64_t{0}) == 0) return "";
  std::string text = "  " + std::to_string(report.value("bytes", std::uint64_t{0})) + " of " +
                     std::to_string(report.value("bytes_total", std::uint64_t{0})) + " bytes over " +
                     report.at("channel").value("name", "?") + ", its slowest rank at " +
                     RateText(report.at("channel").at("gb_per_s")) + "; " +
                     std::to_string(report.value("layers", std::uint64_t{0})) + " layers, " +
                     Milliseconds(report.value("total_ms", 0.0)) + "\n";
  for (const Json& of_rank : report.at("channel").value("ranks", Json::array())) {
    text += "    rank " + of_rank.at("rank").dump() + " over " + of_rank.value("name", "?") + " at " +
            RateText(of_rank.at("gb_per_s")) + ": " + Escaped(of_rank.value("reason", "")) + "\n";
  }
  for (const Json& publisher : report.value("publishers", Json::array())) text += RelayedText(publisher);
  text += DeltaText(report.value("delta", Json()));
  text += PassedOverText(report.value("passed_over", Json()));
  const Json& warning = report.at("channel").at("warning");
  if (warning.is_string()) text += "  warning: " + Escaped(warning.get<std::string>()) + "\n";
  const Json run_warning = report.value("run_warning", Json());
  if (run_warning.is_string()) text += "  warning: " + Escaped(run_warning.get<std::string>()) + "\n";
  for (const Json& change : report.value("config_changes", Json::array())) {
    text += "  warning: " + Escaped(change.get<std::string>()) + "\n";
  }
  if (!report.value("config_compared", true)) text += "  config.json: not compared, as none came with the weights\n";
  for (const Json& rule : report.value("unused_rules", Json::array())) {
    text += "  warning: weight rule '" + Escaped(rule.get<std::string>()) + "' touches no tensor\n";
  }
  for (const Json& layers : report.value("kept", Json::array()))
    text += "  kept: " + Escaped(layers.get<std::string>()) + "\n";
  return text + StagesText(report.value("stage_ms", Json::object()));
}

// What the engine has done is printed also if its report is another version's.
std::string OutcomeText(const Json& outcome) {
  try {
    return ServesText(outcome) + ReadAnswer(outcome.at("endpoint"), [&] { return ReportText(outcome); });
  } catch (const Error& error) {
    return ServesText(outcome) + "  " + EscapedMessage(error.what()) + "\n";
  }
}

// The engines that failed. Those that were cancelled, because others failed, are among them only if there are no
// others.
std::vector<const EngineOutcome*> AtFault(const std::vector<EngineOutcome>& outcomes) {
  std::vector<const EngineOutcome*> failed;
  for (const EngineOutcome& outcome : outcomes) {
    if (!outcome.ok) failed.push_back(&outcome);
  }
  const auto is_cancelled = [](const auto* outcome) { return outcome->error->code() == ErrorCode::kCancelled; };
  if (!std::ranges::all_of(failed, is_cancelled)) std::erase_if(failed, is_cancelled);
  return failed;
}

// One line for each thing that is wrong, with the engines in front that say it.
Error ErrorOf(const std::vector<const EngineOutcome*>& failed) {
  std::vector<std::pair<std::string, std::string>> engines_of;  // message -> engines, in the order of the engines
  for (const EngineOutcome* outcome : failed) {
    const std::string message = outcome->error->what();
    const auto same = std::ranges::find(engines_of, message, &std::pair<std::string, std::string>::first);
    if (same == engines_of.end()) {
      engines_of.emplace_back(message, outcome->endpoint);
    } else {
      same->second += ", " + outcome->endpoint;
    }
  }
  std::string text;
  for (const auto& [message, engines] : engines_of)
    text += (text.empty() ? "" : "\n  ") + NamingEngine(engines, message);
  return {failed.front()->error->code(), text};
}

Json VerdictJson(const CanaryVerdict& verdict) {
  return {{"version", VersionToJson(verdict.version)},
          {"canaries", verdict.canaries},
          {"promoted", !verdict.against},
          {"why", verdict.against ? ErrorToJson(*verdict.against) : Json()}};
}

Error NotPromoted(const CanaryVerdict& verdict) {
  return {verdict.against->code(), verdict.version.ToString() + " was not promoted: " + verdict.against->what()};
}

std::string VerdictText(const CanaryVerdict& verdict) {
  if (verdict.against) return EscapedMessage(NotPromoted(verdict).what()) + "\n";
  return Escaped(verdict.version.ToString()) + " was promoted\n";
}

}  // namespace

void PrintOutcomes(Output& output, const std::vector<EngineOutcome>& outcomes,
                   const std::optional<CanaryVerdict>& verdict) {
  Json json = {{"ok", true}, {"engines", Json::array()}};
  std::string text;
  std::optional<Error> against;
  if (verdict) {
    json["canary"] = VerdictJson(*verdict);
    text = VerdictText(*verdict);
    if (verdict->against) against = NotPromoted(*verdict);
  }
  for (const EngineOutcome& outcome : outcomes) {
    json["engines"].push_back(OutcomeToJson(outcome));
    text += OutcomeText(json["engines"].back());
  }
  const std::vector<const EngineOutcome*> failed = AtFault(outcomes);
  json["ok"] = failed.empty() && !against;
  output.Print(json, Wrapped(text));
  if (!failed.empty()) throw ErrorOf(failed);
  if (against) throw *against;
}

}  // namespace layercast::cli
