package log

import (
	"encoding/binary"
	"hash/crc32"
)

// A frame is an entry or a snapshot with a header: its size and its checksum, four bytes each,
// little-endian.
const frameHeader = 8

// castagnoli computes its tables on first use: a job whose log is in memory needs none.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func appendFrame(b, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli()))
	return append(b, payload...)
}

// cutFrame takes the first frame of b. It returns false if that frame is incomplete or damaged.
// Zeros, which a disk may leave there, are not a frame.
func cutFrame(b []byte) (payload, rest []byte, ok bool) {
	if len(b) < frameHeader {
		return nil, b, false
	}
	size, sum := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	body := b[frameHeader:]
	if size == 0 || uint64(size) > uint64(len(body)) || crc32.Checksum(body[:size], castagnoli()) != sum {
		return nil, b, false
	}
	return body[:size:size], body[size:], true
}

// Join makes one entry of several, and Split restores them. They are for a storage in which each
// entry has a cost.
func Join(entries [][]byte) []byte {
	var b []byte
	for _, e := range entries {
		b = appendFrame(b, e)
	}
	return b
}

// Split returns false if Join did not make b.
func Split(b []byte) (entries [][]byte, ok bool) {
	for len(b) > 0 {
		var e []byte
		if e, b, ok = cutFrame(b); !ok {
			return nil, false
		}
		entries = append(entries, e)
	}
	return entries, true
}
