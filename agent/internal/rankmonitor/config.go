package rankmonitor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits are how long a rank may be silent; 0 means forever.
type Limits struct {
	// FirstHeartbeat is the limit from the beginning of a session to its first heartbeat. Heartbeat
	// is the limit from one heartbeat to the next.
	FirstHeartbeat, Heartbeat time.Duration
	// Sections are the sections that ranks report, with how long each may be open. OutOfSection is
	// how long no section may be open.
	Sections     map[string]time.Duration
	OutOfSection time.Duration
}

// Config is a job's configuration of its rank monitor.
type Config struct {
	Limits
	// Safety is the factor by which clients multiply the longest time that they have seen, to learn
	// a limit.
	Safety float64
	// WarmUp is for how many iterations a step may take as long as the section warmup.
	WarmUp int
	// Confirm answers each heartbeat and section. With ExceptionHook, clients end their process on
	// an uncaught exception.
	Confirm, ExceptionHook bool
}

const (
	// maxSections bounds the sections of a rank. maxName bounds the name of a section, in bytes.
	maxSections = 64
	maxName     = 64
	// maxLimit is the longest accepted limit, because golaunch counts in nanoseconds.
	maxLimit = float64(100 * 365 * 24 * 3600)
)

// Parse parses a configuration: "on", or items separated by commas. An item is SECTION:SECONDS, or
// KEY=VALUE with a key of NVRx's own configuration. SECONDS may be none.
func Parse(text string) (Config, error) {
	c := Config{Limits: Limits{Sections: map[string]time.Duration{}}, Safety: 5, WarmUp: 5}
	if text == "on" {
		return c, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		if err := c.parse(strings.TrimSpace(item)); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

func (c *Config) parse(item string) (err error) {
	if key, value, ok := strings.Cut(item, "="); ok {
		return c.set(strings.TrimSpace(key), strings.TrimSpace(value))
	}
	name, text, ok := strings.Cut(item, ":")
	switch name = strings.TrimSpace(name); {
	case !ok || name == "":
		return fmt.Errorf("%q: SECTION:SECONDS, or KEY=VALUE such as rank_heartbeat_timeout=600", item)
	case len(name) > maxName || len(c.Sections) >= maxSections:
		return fmt.Errorf("section %.*q: at most %d sections with names of up to %d bytes", maxName, name, maxSections, maxName)
	}
	if c.Sections[name], err = parseLimit(text); err != nil {
		return fmt.Errorf("section %s: %w", name, err)
	}
	return nil
}

func (c *Config) set(key, value string) (err error) {
	switch key {
	case "initial_rank_heartbeat_timeout":
		c.FirstHeartbeat, err = parseLimit(value)
	case "rank_heartbeat_timeout":
		c.Heartbeat, err = parseLimit(value)
	case "rank_out_of_section_timeout":
		c.OutOfSection, err = parseLimit(value)
	case "safety_factor":
		if c.Safety, err = strconv.ParseFloat(value, 64); err != nil || !(c.Safety > 0 && c.Safety <= maxLimit) {
			err = fmt.Errorf("%q: a number above 0", value)
		}
	case "num_warmup_iterations":
		if c.WarmUp, err = strconv.Atoi(value); err != nil || c.WarmUp < 0 {
			err = fmt.Errorf("%q: a number of iterations", value)
		}
	case "skip_section_response":
		var skip bool
		skip, err = parseBool(value)
		c.Confirm = !skip
	case "install_exception_hook":
		c.ExceptionHook, err = parseBool(value)
	default:
		return fmt.Errorf("%q is no key of the rank monitor: %s", key, strings.Join(keys, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// keys are the keys of NVRx's configuration that a rank monitor knows. rank_section_timeouts is not
// among them, because each of its sections is an item of its own.
var keys = []string{
	"initial_rank_heartbeat_timeout", "rank_heartbeat_timeout", "rank_out_of_section_timeout", "safety_factor",
	"num_warmup_iterations", "skip_section_response", "install_exception_hook",
}

func parseBool(text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q: true or false", text)
	}
	return yes, nil
}

// parseLimit parses seconds, or none.
func parseLimit(text string) (time.Duration, error) {
	switch text = strings.TrimSpace(text); strings.ToLower(text) {
	case "", "none", "null":
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if limit, ok := toLimit(n); err == nil && ok {
		return limit, nil
	}
	return 0, fmt.Errorf("%q: seconds above 0, or none", text)
}

// toLimit returns a limit of some seconds, if the limit is valid.
func toLimit(seconds float64) (time.Duration, bool) {
	if !(seconds > 0 && seconds <= maxLimit) {
		return 0, false
	}
	return max(1, time.Duration(math.Round(seconds*float64(time.Second)))), true
}

// clone returns a copy that shares nothing with l.
func (l Limits) clone() Limits {
	l.Sections = maps.Clone(l.Sections)
	return l
}

// names returns the sections in alphabetical order.
func (l Limits) names() []string { return slices.Sorted(maps.Keys(l.Sections)) }
