// Picks the data channel between a receiver and a publisher: it measures the channels that both have and can use, and
// takes the fastest; or it takes the one that was asked for by name.
#pragma once

#include <functional>
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
#include "src/session/link/kept_peers.h"
#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"
#include "src/wire/frames.h"

namespace layercast {

// The outcome of trying one channel to a publisher. Value.
struct ChannelTrial {
  std::string name;
  bool usable = false;
  bool attaches = false;               // hands out views of the publisher's memory
  bool by_name = false;                // taken only if it is asked for by name
  std::optional<ErrorCode> failure{};  // both ends have it, and yet it did not work
  double gb_per_s = 0;                 // 0: not measured
  std::string lane{};                  // FetchingEnd::lane
  std::string reason{};                // why it is not usable, or was not measured
};

// "9.4 GB/s"
std::string RateText(double gb_per_s);
// "shm 9.4 GB/s"
std::string Describe(const ChannelTrial& trial);

// The index of the channel to use, or nullopt if there is none. It is the first that attaches, since nothing is faster
// than reading bytes where they lie; or else the fastest. Of channels within a tenth of each other, the first is taken.
std::optional<std::size_t> PickChannel(const std::vector<ChannelTrial>& trials);
// Why that channel was picked, in words: "the fastest: ucx 3.9 GB/s, zmq 2.8 GB/s".
std::string WhyPicked(const std::vector<ChannelTrial>& trials, std::size_t picked);

// Why no channel was picked: kUnavailable, naming each that both ends have and that failed, or kResourceExhausted if
// something has run out here; kUnsupported, naming all, if there is none that both have.
Error WhyNone(const std::vector<ChannelTrial>& trials);

// Asks the publisher itself, over the control link, whether it is there. Throws kUnavailable or kDeadlineExceeded,
// naming it, if it is not.
using ExpectAlive = std::function<void(Deadline)>;

struct ChosenChannel {
  std::string name;
  std::unique_ptr<FetchingEnd> end;
  std::string lane;    // FetchingEnd::lane
  std::string reason;  // for people
  double probed_gb_per_s = 0;
  std::string address{};  // that it is connected to, without its key
};

// Resource; thread-safe: one session at a time chooses. It remembers what it measured with each publisher, so that only
// the first session with a publisher pays for it: tens of milliseconds, and at most some seconds for a channel that
// does not answer. So keep it from session to session; the transports inside keep their mappings too.
class ChannelChooser {
 public:
  explicit ChannelChooser(std::vector<std::unique_ptr<Transport>> transports = AllTransports());

  // Connects the best channel, or the one called `forced` if that is not empty. If not `measured`, because the
  // publisher offers nothing to measure with, it takes the first viable one. Throws WhyNone; a forced channel has no
  // fallback: its own error is thrown. A publisher that dies fails every channel, so `expect_alive` is asked about each
  // that failed or took all its time. What it throws, this throws, and remembers nothing of the channel; likewise if
  // the deadline is stopped. `kept` is taken up again if it is the one that is chosen; else it is closed.
  ChosenChannel Choose(const wire::Welcome& welcome, const ExpectAlive& expect_alive, const std::string& forced,
                       Deadline deadline, bool measured = true, KeptChannel kept = {});
  // Tries every channel of this build, and measures each anew. Throws what `expect_alive` throws.
  std::vector<ChannelTrial> TryAll(const wire::Welcome& welcome, const ExpectAlive& expect_alive, Deadline deadline);

 private:
  // A publisher's end of a channel: the channel's name and the address. A publisher that was restarted has new
  // addresses.
  using EndKey = std::pair<std::string, std::string>;
  struct Measured {
    bool attaches = false;
    std::string lane{};
    double gb_per_s = 0;
    std::optional<Error> error{};
    Deadline::Clock::time_point at{};
  };

  struct Trying {
    const wire::Welcome& welcome;
    const ExpectAlive& expect_alive;
    Deadline deadline;
    bool named = false;     // also tries channels that are taken only by name
    bool measured = false;  // measures; false: uses what is known already
  };
  // Tries the channel called `forced`, or all if that is empty.
  std::vector<ChannelTrial> Try(const std::string& forced, const Trying& how);
  ChannelTrial TryOne(const Transport& transport, const HostIdentity& mine, const Trying& how);
  // What is known of an end, or null if it is nothing or too old.
  const Measured* Known(const EndKey& key) const;
  const Measured& Measure(const Transport& transport, const std::string& address, const Trying& how);
  static bool Failed(const Measured& measured);
  void ThrowWhatFailed(const wire::Welcome& welcome, const std::string& forced) const;

  const std::vector<std::unique_ptr<Transport>> transports_;
  HostMemory memory_;
  std::mutex mutex_;
  std::map<EndKey, Measured> measured_;  // guarded by mutex_
};

}  // namespace layercast
