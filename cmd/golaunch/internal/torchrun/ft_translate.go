package torchrun

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resilience translates the flags that only ft_launcher has.
func (x *translation) resilience() error {
	if x.ft == nil {
		return nil
	}
	values, err := x.ft.configured()
	if err != nil {
		return err
	}
	if x.given.Changed("term-timeout") {
		x.warn("--term-timeout is not honoured: ranks have --workers-stop-timeout (%v s) to end, whatever stops them", x.ft.workersStop)
	}
	monitor := []string{}
	for _, k := range ftTable {
		value, given := values[k.key]
		delete(values, k.key)
		switch {
		case !given:
		case k.instead != "":
			x.warn("%s has no effect: %s", k.key, k.instead)
		case k.key == "restart_policy":
			x.minHealthy = strings.EqualFold(strings.TrimSpace(value), "min-healthy")
		case k.key == "rank_section_timeouts" && isNone(value):
		case k.key == "rank_section_timeouts":
			monitor = append(monitor, value)
		case k.takes == "bool":
			yes, _ := parseBool(value) // the value was checked
			monitor = append(monitor, fmt.Sprintf("%s=%t", k.key, yes))
		default:
			monitor = append(monitor, k.key+"="+strings.TrimSpace(value))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		x.warn("%s of %s is no key that ft_launcher has", key, x.ft.config)
	}
	monitor = slices.DeleteFunc(monitor, func(item string) bool { return strings.TrimSpace(item) == "" })
	if len(monitor) == 0 {
		monitor = []string{"on"}
	}
	if !(x.ft.workersStop >= 0 && x.ft.workersStop <= maxStop) {
		return fmt.Errorf("--workers-stop-timeout %v: seconds from 0 to %.0f", x.ft.workersStop, maxStop)
	}
	return errors.Join(x.set("rank-monitor", strings.Join(monitor, ",")), x.set("grace", strconv.FormatFloat(x.ft.workersStop, 'f', -1, 64)+"s"), x.spares())
}

// maxStop bounds the time, in seconds, that a rank may take to end.
const maxStop = 1e9

// spares makes the nodes beyond MIN spares, because the size of the job does not change. With
// min-healthy these nodes train too, and the job may lose as many ranks as they have.
func (x *translation) spares() error {
	switch {
	case x.max == x.min:
		return nil
	case x.minHealthy:
		per, err := strconv.Atoi(x.nproc)
		if err != nil {
			return fmt.Errorf("restart_policy min-healthy: give --nproc-per-node a number, not %q", x.nproc)
		}
		return errors.Join(x.set("nodes", strconv.Itoa(x.max)), x.set("tolerate-lost-ranks", strconv.Itoa(per*(x.max-x.min))))
	}
	return errors.Join(x.set("nodes", strconv.Itoa(x.min)), x.set("spares", strconv.Itoa(x.max-x.min)))
}

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

// configured returns the values of the file, overridden by the values of the flags.
func (t *ftFlags) configured() (map[string]string, error) {
	values := map[string]string{}
	if t.config != "" {
		text, err := readConfig(t.config)
		switch {
		case errors.Is(err, fs.ErrNotExist) && t.ignoreMissing:
		case err != nil:
			return nil, fmt.Errorf("--ft-cfg-path: %w", err)
		case len(text) > maxConfig:
			return nil, fmt.Errorf("--ft-cfg-path %s: more than %d bytes", t.config, maxConfig)
		default:
			if values, err = parseConfig(text); err != nil {
				return nil, fmt.Errorf("--ft-cfg-path %s: %w", t.config, err)
			}
		}
	}
	for key, value := range values {
		if k, ok := ftKey(key); ok {
			if err := k.check(value); err != nil {
				return nil, fmt.Errorf("%s of %s: %w", key, t.config, err)
			}
		}
	}
	maps.Copy(values, t.values)
	return values, nil
}

// readConfig reads a file. If it is too large, readConfig returns one byte more than maxConfig.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxConfig+1))
}

// parseConfig reads the mapping fault_tolerance, wherever it is in a YAML file. It converts the
// mapping's sections to the form of --ft-rank-section-timeouts.
func parseConfig(text []byte) (map[string]string, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, inALine(err)
	}
	at := findMapping(&file, 0)
	if at == nil {
		return nil, errors.New("it has no mapping fault_tolerance")
	}
	if err := checkKeys(at, true); err != nil {
		return nil, err
	}
	found := map[string]any{}
	if err := at.Decode(&found); err != nil {
		return nil, inALine(err)
	}
	values := map[string]string{}
	for key, value := range found {
		sections, ok := value.(map[string]any)
		if !ok {
			values[key] = scalar(value)
			continue
		}
		var items []string
		for _, name := range slices.Sorted(maps.Keys(sections)) {
			items = append(items, name+":"+scalar(sections[name]))
		}
		values[key] = strings.Join(items, ",")
	}
	return values, nil
}

// inALine joins the errors of YAML, which may have several lines, in one line.
func inALine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

// maxDepth bounds the depth of fault_tolerance, since an alias may contain itself.
const maxDepth = 64

// findMapping finds fault_tolerance in a mapping or below it; nil if it is not there.
func findMapping(in *yaml.Node, depth int) *yaml.Node {
	in = resolve(in)
	if depth > maxDepth {
		return nil
	}
	if in.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(in.Content); i += 2 {
			if value := resolve(in.Content[i+1]); in.Content[i].Value == "fault_tolerance" && value.Kind == yaml.MappingNode {
				return value
			}
		}
	}
	for _, part := range in.Content {
		if part.Kind == yaml.AliasNode {
			continue // an alias is checked where its value is written
		}
		if found := findMapping(part, depth+1); found != nil {
			return found
		}
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// checkKeys refuses keys that are not words, and values that no setting may have. Only the setting
// rank_section_timeouts is a mapping.
func checkKeys(in *yaml.Node, settings bool) error {
	for i := 0; i+1 < len(in.Content); i += 2 {
		key, value := in.Content[i], resolve(in.Content[i+1])
		switch {
		case key.Tag == "!!merge":
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			return fmt.Errorf("line %d: a key that is no word: %.40q", key.Line, key.Value)
		case value.Kind == yaml.MappingNode && settings && key.Value == "rank_section_timeouts":
			if err := checkKeys(value, false); err != nil {
				return err
			}
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s is a mapping or a list, not a single value", key.Line, key.Value)
		}
	}
	return nil
}

// scalar returns a value in the form of a flag's value.
func scalar(value any) string {
	if value == nil {
		return "none"
	}
	return fmt.Sprint(value)
}
