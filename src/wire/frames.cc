#include "src/wire/frames.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/bytes/archive.h"
#include "src/base/check.h"

namespace layercast::wire {
namespace {

constexpr std::uint32_t kMagic = 0x4657434C;  // "LCWF"

constexpr std::array<std::string_view, std::variant_size_v<Message>> kNames = {"hello",
                                                                               "welcome",
                                                                               "subscribe",
                                                                               "need_schedule",
                                                                               "subscribed",
                                                                               "tensors_ready",
                                                                               "tensor_done",
                                                                               "stream_end",
                                                                               "ping",
                                                                               "pong",
                                                                               "bye",
                                                                               "refused",
                                                                               "status",
                                                                               "status_answer",
                                                                               "more_digests",
                                                                               "fetch_from",
                                                                               "relay_lost",
                                                                               "chunks_ready",
                                                                               "progress",
                                                                               "cost_request",
                                                                               "serving_cost",
                                                                               "versions",
                                                                               "versions_answer",
                                                                               "pin_version",
                                                                               "evict_version",
                                                                               "publish_folder",
                                                                               "published_folder",
                                                                               "ask_signed",
                                                                               "signed_digests",
                                                                               "offered_since",
                                                                               "offered_versions",
                                                                               "hold_version",
                                                                               "ask_delta",
                                                                               "delta",
                                                                               "session_trace"};

// Every field here is called what its errors call it, in whichever part of it they are.

void Flag(auto& archive, auto& flag, std::string_view field) {
  auto byte = static_cast<std::uint8_t>(flag ? 1 : 0);
  archive.Number(byte, field);
  if (byte > 1) archive.Refuse(std::string(field) + ": expected 0 or 1, got " + std::to_string(byte));
  archive.Set(flag, byte == 1);
}

void Text(auto& archive, auto& text, std::string_view field) {
  layercast::Text<std::uint16_t>(archive, text, field, field);
}

void Bytes(auto& archive, auto& bytes, std::string_view field, std::size_t most = kMaxFrameBytes) {
  LAYERCAST_CHECK(bytes.size() <= most);
  const std::size_t count = Count<std::uint32_t>(archive, bytes, field);
  if (count > most) {
    archive.Refuse(std::string(field) + ": expected at most " + std::to_string(most) + " bytes, got " +
                   std::to_string(count));
  }
  archive.Bytes(bytes, count, field);
}

void OneDigest(auto& archive, auto& digest) {
  archive.Number(digest.high, "digest");
  archive.Number(digest.low, "digest");
}

void Digests(auto& archive, auto& digests) {
  List<std::uint32_t>(archive, digests, 16, "chunk digests", [&](auto& digest) { OneDigest(archive, digest); });
}

// The three fields that name a version.
void Named(auto& archive, auto& version) {
  Text(archive, version.lineage, "lineage");
  archive.Number(version.step, "step");
  OneDigest(archive, version.digest);
}

void Floats(auto& archive, auto& values) {
  List<std::uint32_t>(archive, values, 4, "amax", [&](auto& value) { archive.Float(value, "amax"); });
}

void Amaxes(auto& archive, auto& amaxes) {
  List<std::uint32_t>(archive, amaxes, 8, "amaxes", [&](auto& amax) {
    archive.Number(amax.tensor, "tensor");
    Floats(archive, amax.values);
  });
}

void OneHost(auto& archive, auto& host) {
  Text(archive, host.boot_id, "boot id");
  Text(archive, host.network, "network namespace");
  Text(archive, host.user, "user");
  Text(archive, host.process, "process");
}

void Fields(auto& archive, Is<Hello> auto& hello) {
  archive.Number(hello.oldest_protocol, "oldest protocol");
  archive.Number(hello.newest_protocol, "newest protocol");
  Text(archive, hello.engine, "engine");
  archive.Number(hello.attempt, "attempt");
  archive.Number(hello.rank, "rank");
  archive.Number(hello.ranks, "ranks");
  OneHost(archive, hello.host);
  Text(archive, hello.lineage, "lineage");
  std::uint8_t known = hello.digest ? 2 : hello.step_known ? 1 : 0;
  archive.Number(known, "step known");
  if (known > 2) archive.Refuse("step known: expected 0, 1 or 2, got " + std::to_string(known));
  archive.Set(hello.step_known, known != 0);
  archive.Number(hello.step, "step");
  if (known == 2) OneDigest(archive, hello.digest);
  if (known == 2 && !hello.digest) archive.Refuse("digest: expected one, got zeros");
}

void Cost(auto& archive, auto& cost) {
  archive.Number(cost.held_up_us, "time held up");
  archive.Number(cost.core_us, "core time");
}

void Fields(auto& archive, Is<Welcome> auto& welcome) {
  archive.Number(welcome.protocol, "protocol");
  Text(archive, welcome.publisher, "publisher");
  OneHost(archive, welcome.host);
  Text(archive, welcome.run, "run");
  Flag(archive, welcome.stream, "mode");
  List<std::uint16_t>(archive, welcome.channels, 4, "channels", [&](auto& channel) {
    Text(archive, channel.name, "channel name");
    Text(archive, channel.address, "channel address");
  });
  Bytes(archive, welcome.manifest, "manifest");
  Cost(archive, welcome.cost);
  Bytes(archive, welcome.config, "config", kMaxConfigBytes);
}

void Fields(auto& archive, Is<Subscribe> auto& subscribe) {
  OneDigest(archive, subscribe.schedule_digest);
  Bytes(archive, subscribe.schedule, "schedule");
  List<std::uint32_t>(archive, subscribe.amax_requests, 10, "amax requests", [&](auto& ask) {
    archive.Number(ask.tensor, "tensor");
    archive.Number(ask.kept, "kept axes");
    archive.Number(ask.before_chunk, "chunk");
    // Accepts any number, even a negative one: the publisher, which knows the tensor, refuses what cannot be its
    // dimension.
    List<std::uint8_t>(archive, ask.read_as, 8, "dimensions",
                       [&](auto& extent) { As<std::uint64_t>(archive, extent, "dimension"); });
  });
  Flag(archive, subscribe.takes_relays, "takes relays");
  Text(archive, subscribe.relay_endpoint, "relay's endpoint");
  archive.Number(subscribe.relay_offer, "relay's offer");
}

void Fields(auto& archive, Is<Subscribed> auto& subscribed) {
  archive.Number(subscribed.offer_id, "offer");
  Digests(archive, subscribed.chunk_digests);
  Amaxes(archive, subscribed.amax);
}

void Fields(auto& archive, Is<TensorsReady> auto& ready) {
  List<std::uint32_t>(archive, ready.tensors, 52, "tensors", [&](auto& tensor) {
    archive.Number(tensor.sequence, "sequence");
    archive.Number(tensor.tensor, "tensor");
    archive.Number(tensor.offer_id, "offer");
    archive.Number(tensor.offset, "offset");
    archive.Float(tensor.amax, "amax");
    OneDigest(archive, tensor.digest);
    Floats(archive, tensor.axis_amax);
    Digests(archive, tensor.chunk_digests);
  });
}

void Fields(auto& archive, Is<TensorDone> auto& done) { archive.Number(done.sequence, "sequence"); }

void Fields(auto& archive, Is<StreamEnd> auto& end) {
  archive.Number(end.tensors, "tensors");
  Cost(archive, end.cost);
}

void Fields(auto& archive, Is<Refused> auto& refused) {
  auto code = static_cast<std::uint8_t>(refused.code);
  archive.Number(code, "code");
  // A code that only a later protocol knows is read as kInternal, since the message is a refusal all the same.
  const bool known = code <= static_cast<std::uint8_t>(ErrorCode::kPermissionDenied);
  archive.Set(refused.code, known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal);
  Bytes(archive, refused.message, "message");
}

void Readers(auto& archive, auto& readers) {
  List<std::uint32_t>(archive, readers, 26, "receivers", [&](auto& reader) {
    Text(archive, reader.engine, "engine");
    archive.Number(reader.rank, "rank");
    Text(archive, reader.takes_from, "relay that it takes from");
    Text(archive, reader.relays_at, "relay's endpoint");
    archive.Number(reader.bytes, "bytes");
    archive.Number(reader.bytes_per_second, "bytes per second");
  });
}

void Fields(auto& archive, Is<StatusAnswer> auto& status) {
  archive.Number(status.process, "process");
  List<std::uint32_t>(archive, status.versions, 57, "versions", [&](auto& version) {
    Text(archive, version.lineage, "lineage");
    archive.Number(version.step, "step");
    OneDigest(archive, version.digest);
    Flag(archive, version.stream, "mode");
    archive.Number(version.tensors, "tensors");
    archive.Number(version.bytes, "bytes");
    archive.Number(version.readers, "readers");
    archive.Number(version.part_rank, "part's rank");
    archive.Number(version.part_ranks, "ranks");
    Text(archive, version.run, "run");
    Readers(archive, version.receivers);
  });
}

void Fields(auto& archive, Is<MoreDigests> auto& more) {
  Digests(archive, more.chunk_digests);
  Amaxes(archive, more.amax);
}

void Fields(auto& archive, Is<FetchFrom> auto& from) {
  Text(archive, from.relay, "relay's endpoint");
  archive.Number(from.offer, "relay's offer");
}

void Fields(auto& archive, Is<RelayLost> auto& lost) {
  Text(archive, lost.relay, "relay's endpoint");
  archive.Number(lost.offer, "relay's offer");
  Text(archive, lost.why, "why");
}

void Fields(auto& archive, Is<ChunksReady> auto& ready) { archive.Number(ready.chunks, "chunks"); }

void Fields(auto& archive, Is<Progress> auto& progress) {
  archive.Number(progress.bytes, "bytes");
  archive.Number(progress.elapsed_us, "elapsed");
  archive.Number(progress.waited_us, "waited");
  archive.Number(progress.bytes_per_second, "bytes per second");
}

void Fields(auto& archive, Is<ServingCost> auto& cost) { archive.Number(cost.core_us, "core time"); }

void Fields(auto& archive, Is<VersionsAnswer> auto& answer) {
  archive.Number(answer.retained_versions, "retained versions");
  archive.Number(answer.retained_bytes, "retained bytes");
  archive.Number(answer.memory_bytes, "memory");
  List<std::uint32_t>(archive, answer.versions, 61, "versions", [&](auto& version) {
    Named(archive, version);
    Text(archive, version.run, "run");
    Flag(archive, version.stream, "mode");
    archive.Number(version.bytes, "bytes");
    archive.Number(version.added_bytes, "added bytes");
    archive.Number(version.readers, "readers");
    archive.Number(version.published_ms, "published");
    Flag(archive, version.pinned, "pinned");
    Flag(archive, version.evicted, "evicted");
    Flag(archive, version.shadowed, "shadowed");
    archive.Number(version.durability, "durability");
    if (version.durability > 3) archive.Refuse("durability: expected 0 to 3");
  });
}

void Fields(auto& archive, Is<PinVersion> auto& pin) {
  Named(archive, pin);
  Flag(archive, pin.pinned, "pinned");
}

void Fields(auto& archive, Is<EvictVersion> auto& evict) { Named(archive, evict); }

void Fields(auto& archive, Is<PublishFolder> auto& folder) {
  Text(archive, folder.path, "path");
  Text(archive, folder.load_format, "load format");
  Text(archive, folder.lineage, "lineage");
  archive.Number(folder.step, "step");
  Text(archive, folder.run, "run");
}

void Fields(auto& archive, Is<PublishedFolder> auto& published) {
  Named(archive, published);
  archive.Number(published.tensors, "tensors");
  archive.Number(published.bytes, "bytes");
}

void Fields(auto& archive, Is<AskSigned> auto& ask) { archive.Array(ask.nonce, "nonce"); }

void Fields(auto& archive, Is<SignedDigests> auto& digests) {
  List<std::uint32_t>(archive, digests.chunk_hashes, 32, "chunk hashes",
                      [&](auto& hash) { archive.Array(hash, "chunk hash"); });
  archive.Array(digests.key, "key");
  archive.Array(digests.signature, "signature");
}

void Fields(auto& archive, Is<OfferedSince> auto& since) { Named(archive, since); }

void OfferedNames(auto& archive, auto& names, std::string_view field) {
  List<std::uint32_t>(archive, names, 28, field, [&](auto& name) {
    Named(archive, name);
    Text(archive, name.run, "run");
  });
}

void Fields(auto& archive, Is<OfferedVersions> auto& offered) {
  Flag(archive, offered.known, "known");
  Flag(archive, offered.shadowed, "shadowed");
  OfferedNames(archive, offered.newest, "newest");
  OfferedNames(archive, offered.since, "since");
}

void Fields(auto& archive, Is<HoldVersion> auto& hold) {
  Named(archive, hold);
  archive.Number(hold.lease_ms, "lease");
}

void Fields(auto& archive, Is<AskDelta> auto& ask) {
  Named(archive, ask);
  OneDigest(archive, ask.schedule_digest);
  archive.Number(ask.most_bytes, "most bytes");
}

void Fields(auto& archive, Is<Delta> auto& delta) {
  archive.Number(delta.offer_id, "offer");
  List<std::uint32_t>(archive, delta.chunk_bytes, 8, "chunks", [&](auto& bytes) { archive.Number(bytes, "bytes"); });
  Text(archive, delta.why, "why");
}

void Fields(auto& archive, Is<SessionTrace> auto& trace) {
  Text(archive, trace.session, "session");
  Text(archive, trace.traceparent, "traceparent");
  Flag(archive, trace.sent, "sent");
  archive.Number(trace.heard_ns, "time heard");
  archive.Number(trace.answered_ns, "time answered");
  Bytes(archive, trace.trace, "trace", kMaxTraceBytes);
}

template <typename Empty>
  requires std::is_empty_v<Empty>
void Fields(auto& /*archive*/, Empty& /*message*/) {}

// Returns the type of the message that follows; `type` is that of one that is written.
std::uint16_t Header(auto& archive, Is<Frame> auto& frame, std::uint16_t type) {
  std::uint32_t magic = kMagic;
  archive.Number(magic, "magic");
  if (magic != kMagic) {
    archive.Refuse(
        "expected the magic of a Layercast frame; what sent this is no publisher and no receiver (an engine?)");
  }
  archive.Number(frame.protocol, "protocol");
  archive.Number(type, "type");
  archive.Number(frame.session, "session");
  if (type == 0 || type > kNames.size()) archive.Refuse("unknown message type " + std::to_string(type));
  return type;
}

// The message of variant index `index`, default-constructed.
template <std::size_t... I>
Message MakeMessage(std::size_t index, std::index_sequence<I...> /*all*/) {
  Message message;
  ((index == I ? void(message.emplace<I>()) : void()), ...);
  return message;
}

}  // namespace

std::string_view MessageName(const Message& message) { return kNames[message.index()]; }

std::vector<std::byte> Encode(const Frame& frame) {
  ArchiveWriter writer;
  Header(writer, frame, static_cast<std::uint16_t>(frame.message.index() + 1));
  std::visit([&](const auto& message) { Fields(writer, message); }, frame.message);
  return std::move(writer).Take();
}

Frame Decode(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxFrameBytes) {
    throw Error(ErrorCode::kCorrupt, "frame of " + std::to_string(bytes.size()) + " bytes, expected at most " +
                                         std::to_string(kMaxFrameBytes));
  }
  Frame frame;
  ArchiveReader header("frame", bytes);
  const std::uint16_t type = Header(header, frame, 0);
  ArchiveReader body("message '" + std::string(kNames[type - 1U]) + "'", bytes.subspan(header.position()));
  frame.message = MakeMessage(type - 1U, std::make_index_sequence<std::variant_size_v<Message>>());
  std::visit([&](auto& message) { Fields(body, message); }, frame.message);
  body.ExpectEnd();
  return frame;
}

}  // namespace layercast::wire
