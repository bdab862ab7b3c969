// Picks the data channel between two ends: what both have and can use is measured, and the fastest taken; or the one
// that was asked for by name.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/transport/channel.h"
#include "src/wire/frames.h"

namespace layercast {

// What became of one channel between this end and a publisher.
struct ChannelTrial {
  std::string name;
  bool usable = false;
  bool attaches = false;  // hands out views of the publisher's memory
  bool by_name = false;   // taken only where it is asked for by name
  double gb_per_s = 0;    // 0: not measured
  std::string lane{};     // FetchingEnd::lane
  std::string reason{};   // why it is not usable, or was not measured
};

// "9.4 GB/s"
std::string RateText(double gb_per_s);
// "shm 9.4 GB/s"
std::string Describe(const ChannelTrial& trial);

// The index of the one to use, or nullopt: the first that attaches, since nothing is faster than to read where it lies;
// else the fastest, where a tenth more counts as no difference, and the first of those.
std::optional<std::size_t> PickChannel(const std::vector<ChannelTrial>& trials);
// In words: "the fastest: ucx 3.9 GB/s, zmq 2.8 GB/s".
std::string WhyPicked(const std::vector<ChannelTrial>& trials, std::size_t picked);

struct ChosenChannel {
  std::string name;
  std::unique_ptr<FetchingEnd> end;
  std::string lane;    // FetchingEnd::lane
  std::string reason;  // for people
  double probed_gb_per_s = 0;
};

// This host, as the handshake carries it.
wire::Host MyHost();

// Resource; thread-safe: one session at a time chooses. It remembers what it measured to a publisher's ends, so that
// only the first session with a publisher waits for it: tens of milliseconds, and at most some seconds for a channel
// that does not answer. Keep it for the next session: so do the transports inside with their mappings.
class ChannelChooser {
 public:
  explicit ChannelChooser(std::vector<std::unique_ptr<Transport>> transports = AllTransports());

  // `forced` empty: any. Not `measured`: the first that is viable, where its end offers nothing to measure by. Throws
  // kUnsupported naming every channel and why it is not usable; with a forced one there is no falling back to another,
  // and what it throws is thrown on. Where the deadline is stopped it throws, and remembers nothing of what it was
  // measuring.
  ChosenChannel Choose(const wire::Welcome& welcome, const std::string& forced, Deadline deadline,
                       bool measured = true);
  // Every channel of this build, each measured anew.
  std::vector<ChannelTrial> TryAll(const wire::Welcome& welcome, Deadline deadline);

 private:
  // An end of a publisher: channel and address. A publisher that was started again has others.
  using EndKey = std::pair<std::string, std::string>;
  struct Measured {
    bool attaches = false;
    std::string lane{};
    double gb_per_s = 0;
    std::optional<Error> error{};
    Deadline::Clock::time_point at{};
  };

  // What was asked for, or all.
  std::vector<ChannelTrial> Try(const wire::Welcome& welcome, const std::string& forced, bool measured,
                                Deadline deadline);
  struct Trying {
    bool named = false;     // also one that is taken only by name
    bool measured = false;  // else: as far as is known
  };
  ChannelTrial TryOne(const Transport& transport, const HostIdentity& mine, const wire::Welcome& welcome,
                      const Trying& how, Deadline deadline);
  // What is known of an end, if that is not too long ago; else null.
  const Measured* Known(const EndKey& key) const;
  const Measured& Measure(const Transport& transport, const std::string& address, Deadline deadline);
  void ThrowWhatFailed(const wire::Welcome& welcome, const std::string& forced) const;

  const std::vector<std::unique_ptr<Transport>> transports_;
  HostMemory memory_;
  std::mutex mutex_;
  std::map<EndKey, Measured> measured_;  // guarded by mutex_
};

}  // namespace layercast
