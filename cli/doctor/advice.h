// What `layercast doctor` says in sentences: what keeps the next sync from being fast, or from coming about, and the
// command that mends it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/machine.h"
#include "cli/doctor/seen_peers.h"
#include "src/session/choose/channel_chooser.h"

namespace layercast::cli {

// Value.
struct Advice {
  std::string name;       // for scripts: "locked_memory"
  std::string text;       // one sentence, or two
  std::string command{};  // what to type, or to write into which file
  bool fails = false;     // with this a sync does not come about; else it is slower than it could be
};

// Of the machine and of the process; `instruction_set` is InstructionSet().
std::vector<Advice> AdviceOn(const Machine& machine, const std::string& instruction_set);
// Of the channels between two ends on this machine.
std::vector<Advice> AdviceOnOwnChannels(const std::vector<ChannelTrial>& trials);
std::vector<Advice> AdviceOn(const PublisherLook& publisher);
std::vector<Advice> AdviceOn(const EngineLook& engine);

}  // namespace layercast::cli
