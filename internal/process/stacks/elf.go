package stacks

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	maxHeaders = 64   // program headers of a file
	maxDynamic = 256  // entries of a file's dynamic section
	maxChain   = 4096 // symbols with the same hash
)

// errNoSymbols means that the symbols of a file cannot be looked up.
var (
	errNoSymbols = errors.New("it has no dynamic symbols")
	errNoELF     = fmt.Errorf("%w: it is no 64-bit little-endian ELF file", errNoSymbols)
)

// image is an ELF file that the loader has mapped into a process.
type image struct {
	*memory
	// bias must be added to addresses in the file.
	bias                  uint64
	symbols, names, table uint64
}

// imageAt reads the headers of a file that is mapped at base.
func imageAt(m *memory, base uint64) (*image, error) {
	header, err := m.bytes(base, 64)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(header, []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)}) {
		return nil, errNoELF
	}
	at, n := binary.LittleEndian.Uint64(header[32:]), binary.LittleEndian.Uint16(header[56:])
	if n > maxHeaders || binary.LittleEndian.Uint16(header[54:]) != 56 {
		return nil, errNoELF
	}
	headers, err := m.bytes(base+at, int(n)*56)
	if err != nil {
		return nil, err
	}
	img := &image{memory: m}
	var dynamic uint64
	loaded := false
	for h := headers; len(h) > 0; h = h[56:] {
		address := binary.LittleEndian.Uint64(h[16:])
		switch elf.ProgType(binary.LittleEndian.Uint32(h)) {
		case elf.PT_LOAD:
			if !loaded {
				img.bias, loaded = base-address&^(pageSize-1), true
			}
		case elf.PT_DYNAMIC:
			dynamic = address
		}
	}
	if !loaded || dynamic == 0 {
		return nil, errNoSymbols
	}
	return img, img.dynamic(dynamic+img.bias, base)
}

// dynamic finds the symbol tables. glibc has replaced the tables' addresses by relocated ones, musl
// has not.
func (img *image) dynamic(at, base uint64) error {
	for range maxDynamic {
		tag, err := img.word(at)
		if err != nil {
			return err
		}
		value, err := img.word(at + 8)
		if err != nil {
			return err
		}
		if value < base {
			value += img.bias
		}
		switch elf.DynTag(tag) {
		case elf.DT_NULL:
			if img.symbols == 0 || img.names == 0 || img.table == 0 {
				return fmt.Errorf("%w that are sorted by their hashes", errNoSymbols)
			}
			return nil
		case elf.DT_SYMTAB:
			img.symbols = value
		case elf.DT_STRTAB:
			img.names = value
		case elf.DT_GNU_HASH:
			img.table = value
		}
		at += 16
	}
	return errNone // the loader has not mapped it yet
}

func hash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	return h
}

// symbol returns the address of a symbol.
func (img *image) symbol(name string) (uint64, error) {
	var table [16]byte // buckets, first symbol, words of the filter, shift
	if err := img.read(img.table, table[:]); err != nil {
		return 0, err
	}
	buckets, first := binary.LittleEndian.Uint32(table[:]), binary.LittleEndian.Uint32(table[4:])
	if buckets == 0 {
		return 0, errNoSymbols
	}
	start := img.table + 16 + 8*uint64(binary.LittleEndian.Uint32(table[8:]))
	wanted := hash(name)
	index, err := img.half(start + 4*uint64(wanted%buckets))
	if err != nil {
		return 0, err
	}
	for i := range uint32(maxChain) {
		if index+i < first || index == 0 {
			break
		}
		h, err := img.half(start + 4*uint64(buckets) + 4*uint64(index+i-first))
		if err != nil {
			return 0, err
		}
		if h|1 == wanted|1 {
			if at, ok := img.named(index+i, name); ok {
				return at, nil
			}
		}
		if h&1 == 1 {
			break
		}
	}
	return 0, fmt.Errorf("it has no symbol %s", name)
}

// named is the address of a symbol if it has that name and is defined.
func (img *image) named(index uint32, name string) (uint64, bool) {
	var b [24]byte
	if img.read(img.symbols+24*uint64(index), b[:]) != nil || binary.LittleEndian.Uint16(b[6:]) == 0 {
		return 0, false
	}
	at := img.names + uint64(binary.LittleEndian.Uint32(b[:]))
	text, err := img.bytes(at, len(name)+1)
	return binary.LittleEndian.Uint64(b[8:]) + img.bias, err == nil && string(text) == name+"\x00"
}
