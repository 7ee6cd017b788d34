package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// cutFiles names a file that is cut short.
func cutFiles(t *tree) string {
	for _, f := range t.files {
		name := f.path
		if name == "." {
			name = t.name
		}
		whole := true
		switch path.Ext(name) {
		case ".pt", ".pth", ".ckpt", ".bin":
			whole = t.wholeZip(f)
		case ".safetensors":
			whole = t.wholeTensors(f)
		case ".json":
			whole = wholeJSON(t.readAt(f, 0, f.size))
		}
		switch path.Base(name) {
		case "_METADATA", "_CHECKPOINT_METADATA": // of Orbax
			whole = wholeJSON(t.readAt(f, 0, f.size))
		}
		if t.err != nil {
			return ""
		}
		if !whole {
			return name + " is cut short"
		}
	}
	return ""
}

// The ends of zip files: APPNOTE.TXT 6.3, sections 4.3.14 to 4.3.16. torch writes no comment after
// the end, and always the records of zip64 before it.
const (
	endSize     = 22
	locatorSize = 20
	end64Size   = 56
)

// wholeZip reports whether a file of torch.save is whole. The file must consist of a zip archive
// alone, so that an archive inside a tensor does not count. It returns true for a file that is not
// a zip archive, such as files of torch before 1.6.
func (t *tree) wholeZip(f file) bool {
	first := t.readAt(f, 0, 4)
	if len(first) < 4 {
		return false
	}
	if string(first) != "PK\x03\x04" {
		return true
	}
	tail := t.readAt(f, f.size-endSize-locatorSize-end64Size, endSize+locatorSize+end64Size)
	if len(tail) < endSize {
		return false
	}
	le := binary.LittleEndian
	end := tail[len(tail)-endSize:]
	if string(end[:4]) != "PK\x05\x06" || le.Uint16(end[20:]) != 0 {
		return false
	}
	size, offset, at := int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:])), f.size-endSize
	if len(tail) == endSize+locatorSize+end64Size && string(tail[end64Size:end64Size+4]) == "PK\x06\x07" && string(tail[:4]) == "PK\x06\x06" {
		at -= locatorSize + end64Size
		if int64(le.Uint64(tail[end64Size+8:])) != at {
			return false
		}
		size, offset = int64(le.Uint64(tail[40:])), int64(le.Uint64(tail[48:]))
	}
	if offset < 0 || size < 0 || offset+size != at {
		return false
	}
	return string(t.readAt(f, offset, 4)) == "PK\x01\x02"
}

// wholeTensors reports whether a safetensors file has all the data that its header promises.
func (t *tree) wholeTensors(f file) bool {
	first := t.readAt(f, 0, 8)
	if len(first) < 8 {
		return false
	}
	length := binary.LittleEndian.Uint64(first)
	if length > uint64(f.size-8) {
		return false
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(t.list(f, 8, int64(length)), &raw) != nil {
		return false
	}
	delete(raw, "__metadata__")
	end := int64(0)
	for _, one := range raw {
		var tensor struct {
			Offsets []int64 `json:"data_offsets"`
		}
		if json.Unmarshal(one, &tensor) != nil || len(tensor.Offsets) != 2 {
			return false
		}
		end = max(end, tensor.Offsets[1])
	}
	return f.size == 8+int64(length)+end
}

// list reads a part of a file that has JSON. It refuses to read more than maxList, because parsed
// JSON takes ten times its length in memory.
func (t *tree) list(f file, from, length int64) []byte {
	if length > maxList {
		t.err = errPartly
		return nil
	}
	return t.readAt(f, from, length)
}

// index is the end of the name of a file that lists the parts of a model.
const index = ".safetensors.index.json"

// missingListed names a file that an index of safetensors files lists but that does not exist, or
// that is newer than the index. The index is written last.
func missingListed(t *tree) string {
	for _, f := range t.files {
		if !strings.HasSuffix(f.path, index) {
			continue
		}
		var list struct {
			Weights map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(t.list(f, 0, f.size), &list); err != nil && t.err == nil {
			return fmt.Sprintf("%s cannot be read: %v", f.path, err)
		}
		for _, name := range list.Weights {
			part, ok := t.find(path.Join(path.Dir(f.path), name))
			switch {
			case !ok:
				return fmt.Sprintf("%s is missing, which %s lists", name, f.path)
			case t.newer(part.at, f.at):
				return fmt.Sprintf("%s is newer than %s", name, f.path)
			}
		}
	}
	return ""
}

// unfinished names a mark of an incomplete checkpoint.
func unfinished(t *tree) string {
	if isTemporary(t.name) {
		return "its name says that it is not complete"
	}
	if _, _, ok := t.beside(t.name + "-unfinished"); ok {
		return t.name + "-unfinished is beside it"
	}
	for _, f := range t.files {
		switch base := f.base(); {
		case base == ".incomplete", base == "checkpoint-is-incomplete.txt", strings.HasSuffix(base, "metadata.tmp"), strings.HasSuffix(base, ".dirty.pt"):
			return f.path + " is there until it is complete"
		case strings.Contains(f.path, ".orbax-checkpoint-tmp"):
			return f.path + " has not got its final name"
		}
	}
	return ""
}
