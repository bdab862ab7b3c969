// What is in the way between this machine and a publisher, an engine, or a second process here.
#include <algorithm>
#include <string>

#include "cli/doctor/advice.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

constexpr double kWorthNaming = 1.2;  // so much faster is a channel that is taken by name alone, before it is told

// Keys that do not fit, or nobody who answers.
Advice AdviceOnError(const std::string& peer, const std::string& flag, const std::string& endpoint, const Error& why) {
  Advice advice{.name = peer, .text = EscapedMessage(why.what()), .fails = true};
  switch (why.code()) {
    case ErrorCode::kPermissionDenied:
      advice.name = peer + "_keys";
      advice.command =
          "layercast keygen MINE --server FOLDER_OF_THE_" + std::string(peer == "engine" ? "ENGINE" : "PUBLISHER") +
          " --roles read,reload    # add the line that it prints to that folder's clients; then --keys MINE";
      break;
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      advice.name = peer + "_unreachable";
      advice.command = "layercast status " + flag + " " + endpoint +
                       "    # on its own host; if it answers there, look at its --bind and at what filters the port";
      break;
    default: break;
  }
  return advice;
}

const ChannelTrial* Find(const std::vector<ChannelTrial>& trials, const std::string& name) {
  const auto found = std::ranges::find(trials, name, &ChannelTrial::name);
  return found == trials.end() ? nullptr : &*found;
}

std::string HowToShare(const std::string& reason) {
  if (reason == "run by another user") {
    return "runuser -u USER_OF_THE_PUBLISHER -- layercast serve ...    # systemd: User=, not DynamicUser=; Kubernetes: "
           "the same runAsUser";
  }
  if (reason == "in another network namespace") {
    return "docker run --network container:PUBLISHER ...    # or --network host for both; Kubernetes: two containers "
           "of "
           "one pod";
  }
  return {};
}

// shm hands out the publisher's memory itself, so nothing between processes of one host is faster.
void AdviseShm(const PublisherLook& publisher, std::vector<Advice>& advice) {
  const ChannelTrial* const shm = Find(publisher.probe->trials, "shm");
  if (!publisher.probe->same_host || shm == nullptr || shm->usable) return;
  advice.push_back({.name = "shm_not_possible",
                    .text = "Publisher " + publisher.endpoint +
                            " is on this host, and yet shm, the fastest channel, cannot be used: " +
                            EscapedMessage(shm->reason) + ".",
                    .command = HowToShare(shm->reason)});
}

void AdviseNamed(const PublisherLook& publisher, std::vector<Advice>& advice) {
  const std::vector<ChannelTrial>& trials = publisher.probe->trials;
  const std::optional<std::size_t> picked = PickChannel(trials);
  if (!picked || trials[*picked].attaches) return;
  for (const ChannelTrial& trial : trials) {
    if (!trial.usable || !trial.by_name || trial.gb_per_s < kWorthNaming * trials[*picked].gb_per_s) continue;
    advice.push_back({.name = "channel_by_name",
                      .text = "An engine here takes " + Describe(trials[*picked]) + " from " + publisher.endpoint +
                              ", and " + Describe(trial) +
                              " would be faster. It is taken only by name, because it trusts the network.",
                      .command = "layercast reload --channel " + trial.name + " --publisher " + publisher.endpoint +
                                 " --engine ...    # or layercast serve --channel " + trial.name});
  }
}

void AdviseFailures(const std::string& where, const std::vector<ChannelTrial>& trials, std::vector<Advice>& advice) {
  for (const ChannelTrial& trial : trials) {
    if (!trial.failure) continue;
    advice.push_back(
        {.name = "channel_fails",
         .text = "Channel " + trial.name + " " + where + " does not work: " + EscapedMessage(trial.reason)});
  }
}

}  // namespace

std::vector<Advice> AdviceOnOwnChannels(const std::vector<ChannelTrial>& trials) {
  std::vector<Advice> advice;
  AdviseFailures("within this machine", trials, advice);
  if (!PickChannel(trials)) {
    advice.push_back(
        {.name = "no_channel",
         .text = "No channel works between two processes of this machine: " + EscapedMessage(WhyNone(trials).what()),
         .fails = true});
  }
  return advice;
}

std::vector<Advice> AdviceOn(const PublisherLook& publisher) {
  if (publisher.error) return {AdviceOnError("publisher", "--publisher", publisher.endpoint, *publisher.error)};
  if (!publisher.offers) {
    return {{.name = "no_version",
             .text = "Publisher " + publisher.endpoint + " offers no version yet: a reload from it is refused.",
             .command = "layercast publish --to " + publisher.endpoint + " --model DIR --step N",
             .fails = true}};
  }
  std::vector<Advice> advice;
  if (!publisher.probe) return advice;
  AdviseShm(publisher, advice);
  AdviseNamed(publisher, advice);
  AdviseFailures("to publisher " + publisher.endpoint, publisher.probe->trials, advice);
  if (!PickChannel(publisher.probe->trials)) {
    advice.push_back({.name = "no_channel",
                      .text = "No channel to publisher " + publisher.endpoint +
                              " works from here: " + EscapedMessage(WhyNone(publisher.probe->trials).what()),
                      .fails = true});
  }
  return advice;
}

std::vector<Advice> AdviceOn(const EngineLook& engine) {
  if (engine.error) return {AdviceOnError("engine", "--engine", engine.endpoint, *engine.error)};
  std::vector<Advice> advice;
  const std::string who = "Engine " + engine.endpoint;
  if (engine.state == "loading") {
    advice.push_back({.name = "loading",
                      .text = who + " still loads its first version, and refuses reloads until it serves.",
                      .fails = true});
  }
  if (engine.state == "torn") {
    advice.push_back({.name = "torn",
                      .text = who + " is torn, and answers nothing until a whole version lands.",
                      .command = "layercast reload --engine " + engine.endpoint});
  }
  if (!engine.last_error.empty()) {
    advice.push_back(
        {.name = "last_error", .text = who + " failed its last reload: " + EscapedMessage(engine.last_error)});
  }
  if (!engine.warning.empty()) {
    advice.push_back({.name = "slow_channel", .text = who + ": " + EscapedMessage(engine.warning)});
  }
  return advice;
}

}  // namespace layercast::cli
