// Which versions of the libraries under the channels this process has. Used by `layercast doctor`.
#pragma once

#include <string>
#include <vector>

namespace layercast {

// Value.
struct LibraryVersion {
  std::string channel;
  std::string library;
  std::string version;  // of what is loaded here, not of its header; empty: it is not here
  std::string why_not;  // set if there is none
};

// Of every channel that stands on a library. They are loaded as their channels do it.
std::vector<LibraryVersion> ChannelLibraries();

}  // namespace layercast
