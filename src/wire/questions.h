// What is asked of a publisher, or told it, outside any session, and what it answers; FORMAT.md specifies the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layercast/version.h"

namespace layercast::wire {

inline constexpr std::size_t kMaxTraceBytes = 4U << 20;  // of a session_trace's trace

// Asks a publisher for its StatusAnswer: which versions it offers, and to whom. Needs no session.
struct StatusRequest {
  bool operator==(const StatusRequest&) const = default;
};

// A receiver that has a session with the publisher now.
struct ReaderStatus {
  std::string engine;
  std::uint32_t rank = 0;
  std::string takes_from;  // the endpoint of the relay that it fetches from; empty: the publisher itself
  std::string relays_at;   // its own endpoint as a relay; empty: it is no relay
  // From the receiver's last Progress; 0 before it has said any.
  std::uint64_t bytes = 0;
  std::uint64_t bytes_per_second = 0;
  bool operator==(const ReaderStatus&) const = default;
};

struct VersionStatus {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  bool stream = false;
  std::uint32_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint32_t readers = 0;  // sessions that are open now
  std::uint32_t part_rank = 0;
  std::uint32_t part_ranks = 1;
  std::string run{};  // as in Welcome
  std::vector<ReaderStatus> receivers{};
  bool operator==(const VersionStatus&) const = default;
};

struct StatusAnswer {
  std::uint64_t process = 0;
  std::vector<VersionStatus> versions;  // oldest first
  bool operator==(const StatusAnswer&) const = default;
};

// Asks a publisher for its VersionsAnswer. This and the requests below need no session.
struct VersionsRequest {
  bool operator==(const VersionsRequest&) const = default;
};

// A version that a publisher keeps, or that is evicted and still read.
struct KeptVersion {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  std::string run{};  // as in Welcome
  bool stream = false;
  std::uint64_t bytes = 0;
  std::uint64_t added_bytes = 0;  // of the publisher's memory: what no older version in the list has
  std::uint32_t readers = 0;
  std::uint64_t published_ms = 0;  // since 1970
  bool pinned = false;
  bool evicted = false;
  bool shadowed = false;        // a later run of the lineage has taken its step over
  std::uint8_t durability = 0;  // Durability
  bool operator==(const KeptVersion&) const = default;
};

struct VersionsAnswer {
  std::uint64_t retained_versions = 0;  // PublisherOptions::retained_versions
  std::uint64_t retained_bytes = 0;     // PublisherOptions::retained_bytes; 0: no bound
  std::uint64_t memory_bytes = 0;       // of all versions together; what several of them have counts once
  std::vector<KeptVersion> versions;    // oldest first
  bool operator==(const VersionsAnswer&) const = default;
};

// Exempts a version from eviction, or no longer does. Answered with VersionsAnswer.
struct PinVersion {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  bool pinned = false;
  bool operator==(const PinVersion&) const = default;
};

// Withdraws a version that is not pinned; its memory is freed when nobody reads it any more. Answered with
// VersionsAnswer.
struct EvictVersion {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  bool operator==(const EvictVersion&) const = default;
};

// Has a publisher publish a folder that it can read. While that takes, it answers pings.
struct PublishFolder {
  std::string path;
  std::string load_format;
  std::string lineage;  // empty: the publisher's own
  std::uint64_t step = 0;
  std::string run{};
  bool operator==(const PublishFolder&) const = default;
};

struct PublishedFolder {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  std::uint32_t tensors = 0;
  std::uint64_t bytes = 0;
  bool operator==(const PublishedFolder&) const = default;
};

// Asks what a publisher has offered since this version. Answered with OfferedVersions.
struct OfferedSince {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;  // none: the last one of that name
  bool operator==(const OfferedSince&) const = default;
};

struct OfferedName {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  std::string run{};  // as in Welcome
  bool operator==(const OfferedName&) const = default;
};

// Of one lineage, also what is kept no longer, as far as the publisher remembers.
struct OfferedVersions {
  bool known = false;     // the version that was asked about: it was offered here
  bool shadowed = false;  // and a later run of the lineage has taken its step over
  // The newest that engines can take, of that lineage if there is one; else of any. At most one.
  std::vector<OfferedName> newest;
  // In the order in which they were offered, after the version. If that is not known: all that have a later step.
  std::vector<OfferedName> since;
  bool operator==(const OfferedVersions&) const = default;
};

// Has a version that is kept stay for so long from now on, as if it were pinned; 0: no longer. Answered with
// VersionsAnswer.
struct HoldVersion {
  std::string lineage;
  std::uint64_t step = 0;
  Digest digest;
  std::uint64_t lease_ms = 0;
  bool operator==(const HoldVersion&) const = default;
};

// Asks what a publisher has recorded of a session, for a timeline of the sync, or answers it. Outside any session.
struct SessionTrace {
  std::string session;        // its name (SessionName)
  std::string traceparent{};  // W3C's, of the sync; empty: it has none
  bool sent = false;          // whoever asks sends the spans to a collector: the publisher shall not
  // Of the answer:
  std::uint64_t heard_ns = 0;  // by the publisher's monotonic clock: when it was asked
  std::uint64_t answered_ns = 0;
  std::vector<std::byte> trace{};  // a ProcessTrace, as JSON; empty: nothing is known of that session
  bool operator==(const SessionTrace&) const = default;
};

}  // namespace layercast::wire
