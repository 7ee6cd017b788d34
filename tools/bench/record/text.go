package record

import (
	"bytes"
	"encoding/json"
)

// text is the record as JSON that people can read and git can compare: one element of a list per
// line.
func (r *Record) text() ([]byte, error) {
	var out bytes.Buffer
	whole, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(whole, &fields); err != nil {
		return nil, err
	}
	out.WriteString("{")
	comma := "\n"
	for _, name := range []string{"format_version", "began", "took_seconds", "machine", "peers", "skipped", "sections", "series"} {
		out.WriteString(comma + ` "` + name + `": `)
		comma = ",\n"
		var list []json.RawMessage
		if fields[name][0] != '[' || json.Unmarshal(fields[name], &list) != nil || len(list) == 0 {
			out.Write(fields[name])
			continue
		}
		for i, element := range list {
			out.WriteString([]string{",\n  ", "[\n  "}[min(1, 1-min(i, 1))])
			out.Write(element)
		}
		out.WriteString("\n ]")
	}
	out.WriteString("\n}\n")
	return out.Bytes(), nil
}
