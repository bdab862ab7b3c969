#include "src/session/channel_chooser.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/session/channel_probe.h"

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

ChannelChooser::ChannelChooser(std::vector<std::unique_ptr<Transport>> transports)
    : transports_(std::move(transports)) {}

ChosenChannel ChannelChooser::Choose(const wire::Welcome& welcome, const std::string& forced, Deadline deadline,
                                     bool measured) {
  const std::lock_guard lock(mutex_);
  if (!forced.empty()) {  // a forced channel is tried again even if it failed before: there is no other
    std::erase_if(measured_, [&](const auto& end) { return end.first.first == forced && end.second.error; });
  }
  while (true) {
    const std::vector<ChannelTrial> trials = Try(welcome, forced, measured, deadline);
    const std::optional<std::size_t> picked = PickChannel(trials);
    if (!picked) {
      ThrowWhatFailed(welcome, forced);
      throw Error(RanOut(welcome) ? ErrorCode::kResourceExhausted : ErrorCode::kUnsupported,
                  "no data channel to it works: " + Join(trials, false, "; "));
    }
    const ChannelTrial& trial = trials[*picked];
    const std::string& address = FindOffered(welcome, trial.name)->address;
    const auto transport = std::ranges::find(transports_, trial.name, &Transport::name);
    try {
      return {trial.name, Connect(**transport, address, deadline), trial.lane,
              forced.empty() ? WhyPicked(trials, *picked) : "it was asked for", trial.gb_per_s};
    } catch (const std::exception& thrown) {  // it worked when it was measured
      const Error error = AsError(thrown);
      if (!forced.empty() || deadline.Stopped() || error.code() == ErrorCode::kResourceExhausted) throw;
      log::warn("channel {} to publisher {}: {}", trial.name, welcome.publisher, error.what());
      measured_[{trial.name, address}] = {.error = error, .at = Clock::now()};
    }
  }
}

std::vector<ChannelTrial> ChannelChooser::TryAll(const wire::Welcome& welcome, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  measured_.clear();
  std::vector<ChannelTrial> trials;
  const HostIdentity mine = HostIdentity::Mine();
  for (const std::unique_ptr<Transport>& transport : transports_) {
    trials.push_back(TryOne(*transport, mine, welcome, {.named = true, .measured = true}, deadline));
  }
  return trials;
}

std::vector<ChannelTrial> ChannelChooser::Try(const wire::Welcome& welcome, const std::string& forced, bool measured,
                                              Deadline deadline) {
  std::vector<ChannelTrial> trials;
  const HostIdentity mine = HostIdentity::Mine();
  for (const std::unique_ptr<Transport>& transport : transports_) {
    if (!forced.empty() && transport->name() != forced) continue;
    trials.push_back(TryOne(*transport, mine, welcome, {.named = !forced.empty(), .measured = measured}, deadline));
    if (!forced.empty()) trials.back().by_name = false;         // it was asked for by name
    if (trials.back().usable && trials.back().attaches) break;  // the others need no measurement
  }
  if (trials.empty()) ThrowNoChannel(forced);
  return trials;
}

ChannelTrial ChannelChooser::TryOne(const Transport& transport, const HostIdentity& mine, const wire::Welcome& welcome,
                                    const Trying& how, Deadline deadline) {
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
    const Measured* const known = Known({trial.name, offered->address});
    trial.usable = known == nullptr || !known->error;
    if (!trial.usable) trial.reason = known->error->what();
    return trial;
  }
  const Measured& measured = Measure(transport, offered->address, deadline);
  trial.attaches = measured.attaches;
  trial.lane = measured.lane;
  trial.gb_per_s = measured.gb_per_s;
  if (measured.error) trial.reason = measured.error->what();
  // kNotFound means that the publisher offers no probe, as those of other makes may not. The channel works all the
  // same.
  trial.usable = !measured.error || measured.error->code() == ErrorCode::kNotFound;
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

const ChannelChooser::Measured& ChannelChooser::Measure(const Transport& transport, const std::string& address,
                                                        Deadline deadline) {
  const EndKey key(transport.name(), address);
  if (const Measured* const known = Known(key)) return *known;
  if (measured_.size() >= kMostMeasured) measured_.clear();
  Measured measured{.at = Clock::now()};
  try {
    const std::unique_ptr<FetchingEnd> end = Connect(transport, address, deadline);
    measured.attaches = end->attaches();
    measured.lane = end->lane();
    measured.gb_per_s = MeasureChannel(*end, memory_, deadline.AtMost(kProbeTime));
  } catch (const std::exception& error) {
    measured.error = AsError(error);
  }
  if (deadline.Stopped()) {  // a measurement that was cut short must not be remembered
    throw Error(ErrorCode::kCancelled, "measuring channel " + key.first + ": this attempt was given up");
  }
  if (measured.error && measured.error->code() != ErrorCode::kNotFound) {
    log::warn("channel {} does not work: {}", key.first, measured.error->what());
  }
  return measured_[key] = std::move(measured);
}

// Whether a channel does not work because something has run out here.
bool ChannelChooser::RanOut(const wire::Welcome& welcome) const {
  return std::ranges::any_of(welcome.channels, [this](const wire::ChannelAddress& offered) {
    const auto measured = measured_.find({offered.name, offered.address});
    return measured != measured_.end() && measured->second.error &&
           measured->second.error->code() == ErrorCode::kResourceExhausted;
  });
}

// A channel that was asked for by name throws its own error, which says best what is wrong.
void ChannelChooser::ThrowWhatFailed(const wire::Welcome& welcome, const std::string& forced) const {
  const wire::ChannelAddress* const offered = FindOffered(welcome, forced);
  if (offered == nullptr) return;
  const auto measured = measured_.find({forced, offered->address});
  if (measured != measured_.end() && measured->second.error) throw Error(*measured->second.error);
}

}  // namespace layercast
