#include "src/session/choose/channel_chooser.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/net/control_socket.h"
#include "src/session/choose/channel_probe.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::milliseconds kProbeTime{5'000};
constexpr std::chrono::seconds kTryAgainAfter{60};  // how long a channel that failed is left alone
constexpr std::size_t kMostMeasured = 256;          // how many ends are remembered
constexpr double kNoDifference = 1.1;
constexpr const char* kByName = "only when it is asked for by name";

const wire::ChannelAddress* FindOffered(const wire::Welcome& welcome, std::string_view name) {
  const auto found = std::ranges::find(welcome.channels, name, &wire::ChannelAddress::name);
  return found == welcome.channels.end() ? nullptr : &*found;
}

// A session's own deadline is much too late for finding out that a publisher is frozen.
std::unique_ptr<FetchingEnd> Connect(const Transport& transport, const std::string& address, Deadline deadline) {
  return transport.Connect(address, deadline.AtMost(transport.connect_time()));
}

// Connects, unless what was kept is that channel to that address and has not ended.
std::unique_ptr<FetchingEnd> ConnectOrResume(const Transport& transport, const std::string& address, KeptChannel& kept,
                                             Deadline deadline) {
  std::unique_ptr<FetchingEnd> resting = std::move(kept.end);
  const bool same = kept.name == transport.name() && kept.address == WithoutKey(address);
  if (resting != nullptr && same && resting->Resume()) return resting;
  return Connect(transport, address, deadline);
}

// Called when a channel has failed, or has taken all its time: that says nothing of the channel if the attempt was
// given up, or the publisher is gone.
void ExpectToGoOn(const std::string& channel, const ExpectAlive& expect_alive, Deadline deadline) {
  if (deadline.Stopped()) {
    throw Error(ErrorCode::kCancelled, "measuring channel " + channel + ": this attempt was given up");
  }
  expect_alive(deadline);
}

bool CanBeTaken(const ChannelTrial& trial) { return trial.usable && !trial.by_name; }

// Why a channel that was tried is not taken. One that works may be left because it is taken only by name.
std::string WhyNotTaken(const ChannelTrial& trial) { return trial.usable ? kByName : trial.reason; }

std::string Join(const std::vector<ChannelTrial>& trials, bool taken, const char* separator) {
  std::string text;
  for (const ChannelTrial& trial : trials) {
    if (CanBeTaken(trial) != taken) continue;
    text += (text.empty() ? "" : separator) + (taken ? Describe(trial) : trial.name + ": " + WhyNotTaken(trial));
  }
  return text;
}

}  // namespace

std::string RateText(double gb_per_s) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g GB/s", gb_per_s);
  return text;
}

std::string Describe(const ChannelTrial& trial) {
  if (trial.gb_per_s == 0) return trial.name + " (not measured: " + trial.reason + ")";
  return trial.name + " " + RateText(trial.gb_per_s);
}

std::optional<std::size_t> PickChannel(const std::vector<ChannelTrial>& trials) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (!CanBeTaken(trials[i])) continue;
    if (trials[i].attaches) return i;
    if (!best || trials[i].gb_per_s > trials[*best].gb_per_s * kNoDifference) best = i;
  }
  return best;
}

std::string WhyPicked(const std::vector<ChannelTrial>& trials, std::size_t picked) {
  if (trials[picked].attaches) return "it reads the publisher's own memory: nothing is faster";
  if (std::ranges::count_if(trials, CanBeTaken) > 1) return "the fastest: " + Join(trials, true, ", ");
  return "the only one: " + Join(trials, false, "; ");
}

Error WhyNone(const std::vector<ChannelTrial>& trials) {
  std::string failed;
  auto code = ErrorCode::kUnsupported;  // unless one that failed says more than that it cannot do what was asked
  for (const ChannelTrial& trial : trials) {
    if (!trial.failure) continue;
    failed += (failed.empty() ? "" : "; ") + trial.name + ": " + trial.reason;
    if (trial.failure == ErrorCode::kResourceExhausted) code = ErrorCode::kResourceExhausted;
    if (trial.failure != ErrorCode::kUnsupported && code == ErrorCode::kUnsupported) code = ErrorCode::kUnavailable;
  }
  return {code, "no data channel to it works: " + (failed.empty() ? Join(trials, false, "; ") : failed)};
}

ChannelChooser::ChannelChooser(std::vector<std::unique_ptr<Transport>> transports)
    : transports_(std::move(transports)) {}

ChosenChannel ChannelChooser::Choose(const wire::Welcome& welcome, const ExpectAlive& expect_alive,
                                     const std::string& forced, Deadline deadline, bool measured, KeptChannel kept) {
  const std::lock_guard lock(mutex_);
  if (!forced.empty()) {  // a forced channel is tried again even if it failed before: there is no other
    std::erase_if(measured_, [&](const auto& end) { return end.first.first == forced && end.second.error; });
  }
  const Trying how{welcome, expect_alive, deadline, !forced.empty(), measured};
  while (true) {
    const std::vector<ChannelTrial> trials = Try(forced, how);
    const std::optional<std::size_t> picked = PickChannel(trials);
    if (!picked) {
      ThrowWhatFailed(welcome, forced);
      throw WhyNone(trials);
    }
    const ChannelTrial& trial = trials[*picked];
    const std::string& address = FindOffered(welcome, trial.name)->address;
    const auto transport = std::ranges::find(transports_, trial.name, &Transport::name);
    try {
      return {trial.name,     ConnectOrResume(**transport, address, kept, deadline),
              trial.lane,     forced.empty() ? WhyPicked(trials, *picked) : "it was asked for",
              trial.gb_per_s, WithoutKey(address)};
    } catch (const std::exception& thrown) {  // it worked when it was measured
      const Error error = AsError(thrown);
      ExpectToGoOn(trial.name, expect_alive, deadline);
      if (!forced.empty() || error.code() == ErrorCode::kResourceExhausted) throw;
      log::warn("channel {} to publisher {}: {}", trial.name, welcome.publisher, error.what());
      measured_[{trial.name, WithoutKey(address)}] = {.error = error, .at = Clock::now()};
    }
  }
}

std::vector<ChannelTrial> ChannelChooser::TryAll(const wire::Welcome& welcome, const ExpectAlive& expect_alive,
                                                 Deadline deadline) {
  const std::lock_guard lock(mutex_);
  measured_.clear();
  const Trying how{welcome, expect_alive, deadline, /*named=*/true, /*measured=*/true};
  std::vector<ChannelTrial> trials;
  const HostIdentity mine = HostIdentity::Mine();
  for (const std::unique_ptr<Transport>& transport : transports_) {
    trials.push_back(TryOne(*transport, mine, how));
  }
  return trials;
}

std::vector<ChannelTrial> ChannelChooser::Try(const std::string& forced, const Trying& how) {
  std::vector<ChannelTrial> trials;
  const HostIdentity mine = HostIdentity::Mine();
  for (const std::unique_ptr<Transport>& transport : transports_) {
    if (!forced.empty() && transport->name() != forced) continue;
    trials.push_back(TryOne(*transport, mine, how));
    if (!forced.empty()) trials.back().by_name = false;         // it was asked for by name
    if (trials.back().usable && trials.back().attaches) break;  // the others need no measurement
  }
  if (trials.empty()) ThrowNoChannel(forced);
  return trials;
}

ChannelTrial ChannelChooser::TryOne(const Transport& transport, const HostIdentity& mine, const Trying& how) {
  const wire::Welcome& welcome = how.welcome;
  const HostIdentity theirs{welcome.host.boot_id, welcome.host.network, welcome.host.user, welcome.host.process};
  ChannelTrial trial{.name = std::string(transport.name())};
  trial.reason = transport.WhyNotHere();
  if (!trial.reason.empty()) return trial;
  const wire::ChannelAddress* offered = FindOffered(welcome, trial.name);
  if (offered == nullptr) {
    trial.reason = "the publisher does not offer it";
    return trial;
  }
  trial.reason = transport.WhyNotBetween(mine, theirs);
  if (!trial.reason.empty()) return trial;
  trial.by_name = !transport.ByDefault(mine, theirs);
  if (trial.by_name && !how.named) {
    trial.reason = kByName;
    return trial;
  }
  if (!how.measured) {
    const Measured* const known = Known({trial.name, WithoutKey(offered->address)});
    trial.usable = known == nullptr || !known->error;
    if (trial.usable) return trial;
    trial.reason = known->error->what();
    trial.failure = known->error->code();
    return trial;
  }
  const Measured& measured = Measure(transport, offered->address, how);
  trial.attaches = measured.attaches;
  trial.lane = measured.lane;
  trial.gb_per_s = measured.gb_per_s;
  if (measured.error) trial.reason = measured.error->what();
  trial.usable = !Failed(measured);
  if (!trial.usable) trial.failure = measured.error->code();
  return trial;
}

const ChannelChooser::Measured* ChannelChooser::Known(const EndKey& key) const {
  const auto known = measured_.find(key);
  if (known == measured_.end()) return nullptr;
  const std::optional<Error>& error = known->second.error;
  if (!error) return &known->second;
  // What had run out here says nothing of the channel.
  const bool of_channel = error->code() != ErrorCode::kResourceExhausted;
  return of_channel && Clock::now() - known->second.at < kTryAgainAfter ? &known->second : nullptr;
}

// kNotFound means that the publisher offers no probe, as those of other makes may not. The channel works all the same.
bool ChannelChooser::Failed(const Measured& measured) {
  return measured.error && measured.error->code() != ErrorCode::kNotFound;
}

const ChannelChooser::Measured& ChannelChooser::Measure(const Transport& transport, const std::string& address,
                                                        const Trying& how) {
  const EndKey key(transport.name(), WithoutKey(address));  // each session has a key of its own
  if (const Measured* const known = Known(key)) return *known;
  if (measured_.size() >= kMostMeasured) measured_.clear();
  Measured measured{.at = Clock::now()};
  bool cut_short = false;
  try {
    const std::unique_ptr<FetchingEnd> end = Connect(transport, address, how.deadline);
    measured.attaches = end->attaches();
    measured.lane = end->lane();
    const Deadline probed = how.deadline.AtMost(kProbeTime);
    measured.gb_per_s = MeasureChannel(*end, memory_, probed);
    cut_short = probed.Passed();  // by a link that is slow, or a publisher that froze meanwhile
  } catch (const std::exception& error) {
    measured.error = AsError(error);
  }
  if (cut_short || Failed(measured)) ExpectToGoOn(key.first, how.expect_alive, how.deadline);
  if (Failed(measured)) {
    log::warn("channel {} does not work: {}", key.first, measured.error->what());
  }
  return measured_[key] = std::move(measured);
}

// A channel that was asked for by name throws its own error, which says best what is wrong.
void ChannelChooser::ThrowWhatFailed(const wire::Welcome& welcome, const std::string& forced) const {
  const wire::ChannelAddress* const offered = FindOffered(welcome, forced);
  if (offered == nullptr) return;
  const auto measured = measured_.find({forced, WithoutKey(offered->address)});
  if (measured != measured_.end() && measured->second.error) throw Error(*measured->second.error);
}

}  // namespace layercast
