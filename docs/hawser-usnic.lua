-- A Wireshark dissector for the datagrams of hawser's usnic BTL and of its agents, as src/wire/usnic.rs and
-- src/wire/probe.rs say.
--
--     tshark -X lua_script:hawser-usnic.lua -r capture.pcapng
--
-- or copy it to a folder of plugins (Wireshark: Help, About, Folders). Ports are chosen when a job starts, so that
-- datagrams are told by their form. A capture on the sending machine shows runs of packets before the kernel has
-- parted them (UDP_SEGMENT): they are shown as the packets that they are. Tags need keys that only the job has, and
-- are not checked; of protected packets the payload is encrypted.

local usnic = Proto("hawser_usnic", "hawser usnic protocol")
local agent = Proto("hawser_agent", "hawser usnic agent")

local VERSION, SHORT, LONG, SEAL = 3, 48, 64, 16

-- Kinds of packets, bytes of their extensions, and whether they carry a payload.
local kinds = {
    [1] = "Ack", [2] = "Fragment", [3] = "Chunk", [4] = "Put", [5] = "GetRequest", [6] = "GetData", [7] = "Refused",
    [8] = "Void", [9] = "Close", [10] = "CloseAck", [11] = "Reject", [12] = "Withdraw", [13] = "Withdrawn", [14] = "Reset",
}
local extension = { [3] = 12, [4] = 24, [5] = 32, [6] = 16, [7] = 8, [11] = 8, [13] = 8 }
local carries = { [2] = true, [3] = true, [4] = true, [6] = true }
local questions = { [1] = "Ping", [2] = "Pong", [3] = "Ask", [4] = "Alive", [5] = "Gone" }

local f = {}
local function field(name, make, ...)
    f[name] = make("hawser_usnic." .. name, ...)
end
field("version", ProtoField.uint8, "Version", base.DEC)
field("kind", ProtoField.uint8, "Kind", base.DEC, kinds, 0x7f)
field("long", ProtoField.bool, "Long header", 8, nil, 0x80)
field("acknowledges", ProtoField.bool, "Acknowledges", 8, nil, 0x01)
field("protected", ProtoField.bool, "Protected", 8, nil, 0x02)
field("asks", ProtoField.bool, "Asks for an acknowledgement", 8, nil, 0x04)
field("retransmission", ProtoField.bool, "Sent before", 8, nil, 0x08)
field("words", ProtoField.uint8, "Words of the bitmap", base.DEC, nil, 0x70)
field("acks_retransmission", ProtoField.bool, "Acknowledges what was sent before", 8, nil, 0x80)
field("tag", ProtoField.uint8, "Tag of the PML", base.HEX)
field("length", ProtoField.uint16, "Payload length", base.DEC)
field("credit", ProtoField.uint16, "Credit (largest segments)", base.DEC)
field("keyed_tag", ProtoField.uint64, "Keyed tag", base.HEX)
field("number", ProtoField.uint64, "Packet number", base.DEC)
field("stamp", ProtoField.uint32, "Stamp (microseconds)", base.DEC)
field("echo", ProtoField.uint32, "Echo (microseconds)", base.DEC)
field("seq", ProtoField.uint64, "Sequence number", base.DEC)
field("ack", ProtoField.uint64, "Acknowledgement: all below has arrived", base.DEC)
field("receiver_slot", ProtoField.uint32, "Receiver's slot for the sender", base.DEC)
field("connection", ProtoField.uint16, "Connection", base.DEC)
field("name", ProtoField.uint64, "Sender's name", base.HEX)
field("incarnation", ProtoField.uint32, "Sender's incarnation", base.HEX)
field("sender_slot", ProtoField.uint32, "Sender's slot for the receiver", base.DEC)
field("bitmap", ProtoField.uint64, "Arrived from the sequence number on", base.HEX)
field("fragment", ProtoField.uint32, "Fragment", base.DEC)
field("size", ProtoField.uint32, "Bytes of the whole fragment", base.DEC)
field("offset", ProtoField.uint64, "Offset", base.DEC)
field("registration", ProtoField.uint32, "Registration", base.DEC)
field("generation", ProtoField.uint32, "Generation", base.DEC)
field("operation", ProtoField.uint64, "Operation", base.DEC)
field("wanted", ProtoField.uint64, "Bytes asked for", base.DEC)
field("segment", ProtoField.uint64, "Segment", base.DEC)
field("payload", ProtoField.bytes, "Payload")
field("sealed", ProtoField.bytes, "Encrypted payload")
field("seal", ProtoField.bytes, "Authentication tag")
field("padding", ProtoField.bytes, "Padding")
usnic.fields = f

local a = {
    kind = ProtoField.uint8("hawser_agent.kind", "Kind", base.DEC, questions),
    length = ProtoField.uint32("hawser_agent.length", "Length of the ping, or incarnation", base.DEC),
    keyed_tag = ProtoField.uint64("hawser_agent.keyed_tag", "Keyed tag", base.HEX),
    nonce = ProtoField.uint64("hawser_agent.nonce", "Number of the question", base.HEX),
    name = ProtoField.uint64("hawser_agent.name", "Name of the process", base.HEX),
}
agent.fields = a

-- What the first packet in these bytes is made of; nil where there is none.
local function parse(bytes)
    local left = bytes:len()
    if left < SHORT or bytes(0, 1):uint() ~= VERSION or bytes(46, 2):le_uint() ~= 0 then return nil end
    local kind, is_long = bit.band(bytes(1, 1):uint(), 0x7f), bit.band(bytes(1, 1):uint(), 0x80) ~= 0
    local flags, length = bytes(2, 1):uint(), bytes(4, 2):le_uint()
    local words = bit.band(bit.rshift(flags, 4), 7)
    if not kinds[kind] or words > (kind == 1 and 4 or 0) or (length > 0 and not carries[kind]) then return nil end
    local at = is_long and LONG or SHORT
    local header = at + (extension[kind] or 0) + 8 * words
    local seal = bit.band(flags, 2) ~= 0 and SEAL or 0
    if header + length + seal > left then return nil end
    return { kind = kind, is_long = is_long, at = at, words = words, header = header, length = length, seal = seal,
        total = header + length + seal }
end

local function add_extension(tree, bytes, packet)
    local at, kind = packet.at, packet.kind
    local function le(name, length)
        tree:add_le(f[name], bytes(at, length))
        at = at + length
    end
    if kind == 1 then
        for _ = 1, packet.words do le("bitmap", 8) end
    elseif kind == 3 then
        le("fragment", 4)
        le("size", 4)
        tree:add(f.offset, bytes(at, 4), UInt64(bytes(at, 4):le_uint()))
    elseif kind == 4 or kind == 5 then
        le("registration", 4)
        le("generation", 4)
        le("offset", 8)
        if kind == 5 then le("wanted", 8) end
        le("operation", 8)
    elseif kind == 6 then
        le("operation", 8)
        le("offset", 8)
    elseif kind == 7 or kind == 11 then
        le("operation", 8)
    elseif kind == 13 then
        le("segment", 8)
    end
end

local function add_packet(root, bytes, packet)
    local text = kinds[packet.kind]
    if packet.kind ~= 1 then text = text .. " " .. tostring(bytes(24, 8):le_uint64()) end
    if packet.length > 0 then text = text .. ", " .. packet.length .. " bytes" end
    local tree = root:add(usnic, bytes(0, packet.total), "hawser usnic: " .. text)
    tree:add(f.version, bytes(0, 1))
    tree:add(f.kind, bytes(1, 1))
    tree:add(f.long, bytes(1, 1))
    for _, name in ipairs({ "acknowledges", "protected", "asks", "retransmission", "words", "acks_retransmission" }) do
        tree:add(f[name], bytes(2, 1))
    end
    tree:add(f.tag, bytes(3, 1))
    tree:add_le(f.length, bytes(4, 2))
    tree:add_le(f.credit, bytes(6, 2))
    tree:add_le(packet.seal > 0 and f.number or f.keyed_tag, bytes(8, 8))
    tree:add_le(f.stamp, bytes(16, 4))
    tree:add_le(f.echo, bytes(20, 4))
    tree:add_le(f.seq, bytes(24, 8))
    tree:add_le(f.ack, bytes(32, 8))
    tree:add_le(f.receiver_slot, bytes(40, 4))
    tree:add_le(f.connection, bytes(44, 2))
    if packet.is_long then
        tree:add_le(f.name, bytes(48, 8))
        tree:add_le(f.incarnation, bytes(56, 4))
        tree:add_le(f.sender_slot, bytes(60, 4))
    end
    add_extension(tree, bytes, packet)
    if packet.length > 0 then
        tree:add(packet.seal > 0 and f.sealed or f.payload, bytes(packet.header, packet.length))
    end
    if packet.seal > 0 then tree:add(f.seal, bytes(packet.header + packet.length, packet.seal)) end
    return text
end

function usnic.dissector(buffer, pinfo, root)
    local at, texts = 0, {}
    while at < buffer:len() do
        local rest = buffer(at):tvb()
        local packet = parse(rest)
        if not packet then
            root:add(f.padding, buffer(at))
            break
        end
        texts[#texts + 1] = add_packet(root, rest, packet)
        at = at + packet.total
    end
    pinfo.cols.protocol = "hawser usnic"
    pinfo.cols.info = #texts > 4 and string.format("%s and %d more", texts[1], #texts - 1) or table.concat(texts, "; ")
    return at
end

local function dissect_agent(buffer, pinfo, root)
    local tree = root:add(agent, buffer())
    tree:add(a.kind, buffer(1, 1))
    tree:add_le(a.length, buffer(4, 4))
    tree:add_le(a.keyed_tag, buffer(8, 8))
    tree:add_le(a.nonce, buffer(16, 8))
    tree:add_le(a.name, buffer(24, 8))
    pinfo.cols.protocol = "hawser agent"
    pinfo.cols.info = questions[buffer(1, 1):uint()]
end

usnic:register_heuristic("udp", function(buffer, pinfo, root)
    local bytes = buffer:len() > 0 and buffer() or nil
    if not bytes or not parse(buffer) then return false end
    usnic.dissector(buffer, pinfo, root)
    return true
end)

agent:register_heuristic("udp", function(buffer, pinfo, root)
    if buffer:len() < 32 or buffer(0, 1):uint() ~= 0x51 or buffer(2, 2):uint() ~= 0 then return false end
    if not questions[buffer(1, 1):uint()] then return false end
    dissect_agent(buffer, pinfo, root)
    return true
end)
