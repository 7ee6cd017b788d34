package checkpoint

import (
	"errors"
	"math"

	"github.com/golaunch/golaunch/agent/internal/pickle"
)

// extents are the least lengths of the files that a DCP metadata file lists.
type extents map[string]int64

// pickled reads the extents from a metadata file, which is a pickle of torch's Metadata. It keeps
// only the fields of _StorageInfo.
func pickled(text []byte) (extents, error) {
	found := extents{}
	_, err := pickle.Read(text, found)
	switch {
	case errors.Is(err, pickle.ErrLarge):
		return nil, errPartly
	case err == nil && len(found) == 0:
		err = errors.New("it lists no file")
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// fields are the fields of _StorageInfo that a dict has.
type fields struct {
	path           string
	offset, length int64
}

func (extents) Tuple([]any) any { return nil }
func (extents) Dict() any       { return &fields{} }

func (extents) Set(dict any, pairs []any) {
	into, ok := dict.(*fields)
	for i := 0; ok && i < len(pairs); i += 2 {
		switch key, _ := pairs[i].(string); key {
		case "relative_path":
			into.path, _ = pairs[i+1].(string)
		case "offset":
			into.offset, _ = pairs[i+1].(int64)
		case "length":
			into.length, _ = pairs[i+1].(int64)
		}
	}
}

// storageInfo is a _StorageInfo object before it has fields.
type storageInfo struct{}

func (extents) Object(class, _ any) any {
	if c, ok := class.(pickle.Class); ok && c.Name == "_StorageInfo" {
		return storageInfo{}
	}
	return nil
}

func (e extents) Build(object, state any) error {
	_, is := object.(storageInfo)
	f, ok := state.(*fields)
	if !is || !ok {
		return nil
	}
	if f.path == "" || f.offset < 0 || f.length < 0 || f.offset > math.MaxInt64-f.length {
		return errors.New("it lists a part of a file without a place")
	}
	e[f.path] = max(e[f.path], f.offset+f.length)
	return nil
}
