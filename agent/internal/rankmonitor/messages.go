package rankmonitor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/golaunch/golaunch/agent/internal/pickle"
)

// The messages of a rank. Their classes are in nvidia_resiliency_ext/fault_tolerance/data.py.
type (
	authMsg struct{}
	initMsg struct {
		// newer says that the client is of version 0.6 or later.
		newer  bool
		warmUp int64
	}
	heartbeatMsg struct{}
	sectionMsg   struct {
		name      string
		action    int64
		iteration int64
	}
	// updateMsg has the limits that ranks have learned. Limits that do not change are nil.
	updateMsg struct{ heartbeats, sections *Limits }
	// controlMsg asks for something at the next restart.
	controlMsg struct {
		rank   int64
		action int64
		why    string
	}
)

// These are the values of SectionAction.
const (
	openSection      = 1
	closeSection     = 2
	closeAllSections = 3
)

var errMessage = errors.New("no message of a rank monitor's client that golaunch knows")

// parseMessage reads one of the messages.
func parseMessage(text []byte) (any, error) {
	value, err := pickle.Read(text, values{})
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case []any:
		return parseControl(v)
	case *object:
		switch v.class {
		case data("AuthkeyMsg"):
			return authMsg{}, nil
		case data("HeartbeatMsg"):
			return heartbeatMsg{}, nil
		case data("InitMsg"):
			_, newer := v.fields["iteration"]
			return initMsg{newer, v.number("num_warmup_iters")}, nil
		case data("SectionMsg"):
			action, _ := v.fields["action"].(*object)
			m := sectionMsg{v.text("section"), action.value(), v.number("iteration")}
			if m.action < openSection || m.action > closeAllSections {
				return nil, errMessage
			}
			return m, nil
		case data("UpdateConfigMsg"):
			return parseUpdate(v)
		}
	}
	return nil, errMessage
}

func parseUpdate(v *object) (any, error) {
	var m updateMsg
	if hb, ok := v.fields["hb_timeouts"].(*object); ok {
		m.heartbeats = &Limits{FirstHeartbeat: hb.limit("initial"), Heartbeat: hb.limit("subsequent")}
	}
	if of, ok := v.fields["section_timeouts"].(*object); ok {
		m.sections = &Limits{Sections: map[string]time.Duration{}, OutOfSection: of.limit("out_of_section")}
		sections, _ := of.fields["section"].(dict)
		if len(sections) > maxSections {
			return nil, fmt.Errorf("limits of %d sections; at most %d are followed", len(sections), maxSections)
		}
		for name, value := range sections {
			if len(name) > maxName {
				return nil, fmt.Errorf("section %.*q: its name may have %d bytes", maxName, name, maxName)
			}
			m.sections.Sections[name] = asLimit(value)
		}
	}
	return m, nil
}

func parseControl(v []any) (any, error) {
	if len(v) != 2 {
		return nil, errMessage
	}
	rank, err := asRank(v[0])
	asked, ok := v[1].(*object)
	if err != nil || !ok || asked.class != data("WorkloadControlRequest") {
		return nil, errMessage
	}
	action, _ := asked.fields["action"].(*object)
	return controlMsg{rank, action.value(), asked.text("description")}, nil
}

// asRank returns a rank's number. Up to 0.5, without torch.distributed, the number is a text.
func asRank(value any) (int64, error) {
	if text, ok := value.(string); ok {
		return strconv.ParseInt(text, 10, 32)
	}
	n, ok := value.(int64)
	if !ok {
		return 0, errMessage
	}
	return n, nil
}

// asLimit returns a number of seconds, or no limit.
func asLimit(value any) time.Duration {
	seconds := math.NaN()
	switch v := value.(type) {
	case float64:
		seconds = v
	case int64:
		seconds = float64(v)
	}
	limit, _ := toLimit(seconds)
	return limit
}

const ofNVRx = "nvidia_resiliency_ext.fault_tolerance."

// data returns a class of the messages.
func data(name string) pickle.Class { return pickle.Class{Module: ofNVRx + "data", Name: name} }

// object is a Python object: its class, the arguments it was made with, and its fields.
type object struct {
	class  pickle.Class
	args   []any
	fields dict
}

type dict map[string]any

func (o *object) text(field string) string {
	text, _ := o.fields[field].(string)
	return text
}

// number returns the number in a field; -1 for anything else.
func (o *object) number(field string) int64 {
	if n, ok := o.fields[field].(int64); ok {
		return n
	}
	return -1
}

func (o *object) limit(field string) time.Duration { return asLimit(o.fields[field]) }

// value returns the value of a member of an enum; -1 for anything else.
func (o *object) value() int64 {
	if o == nil || len(o.args) != 1 {
		return -1
	}
	if n, ok := o.args[0].(int64); ok {
		return n
	}
	return -1
}

// values makes the values of a message.
type values struct{}

func (values) Tuple(items []any) any { return append([]any{}, items...) }
func (values) Dict() any             { return dict{} }

func (values) Set(into any, pairs []any) {
	d, ok := into.(dict)
	for i := 0; ok && i < len(pairs); i += 2 {
		if key, ok := pairs[i].(string); ok {
			d[key] = pairs[i+1]
		}
	}
}

func (values) Object(class, args any) any {
	c, ok := class.(pickle.Class)
	if !ok {
		return nil
	}
	o := &object{class: c}
	o.args, _ = args.([]any)
	return o
}

func (values) Build(of, state any) error {
	if o, ok := of.(*object); ok {
		o.fields, _ = state.(dict)
	}
	return nil
}
