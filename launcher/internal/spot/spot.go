// Package spot asks a cloud whether it is going to take this machine back.
package spot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Notice says when, and why, the cloud takes the machine back.
type Notice struct {
	At  time.Time
	Why string
}

// Clouds are the clouds that Watch can ask.
var Clouds = []string{"aws", "gcp", "azure"}

const (
	// every is the time between two questions to a cloud that answers at once; AWS recommends this
	// interval. Google instead answers when something changes.
	every = 5 * time.Second
	// answerLimit bounds the wait for an answer, and changeLimit the wait for the answer to a
	// question that waits for a change.
	answerLimit = 2 * time.Second
	changeLimit = 10 * time.Minute
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 64 << 10
	// gcpTime is the time that Google leaves a machine after its notice.
	gcpTime = 30 * time.Second
)

// margin is how long before the end of the machine golaunch stops the ranks.
const margin = 15 * time.Second

// OnNotice calls leave once, when the cloud says that it takes this machine back. leave gets the
// reason, and the time that the ranks have to get ready. OnNotice returns at once, and does nothing
// if cloud is empty. If OnNotice cannot ask the cloud, trouble gets the reason, once until the
// reason changes.
func OnNotice(ctx context.Context, cloud string, trouble func(error), leave func(why string, within time.Duration)) {
	if cloud == "" {
		return
	}
	go func() {
		n, err := Watch(ctx, cloud, trouble)
		if err != nil {
			return // ctx has ended
		}
		left := time.Until(n.At)
		leave(n.Why, left-min(left/3, margin))
	}()
}

// Watch returns when the cloud says that it takes the machine back, or ctx ends. If the cloud does
// not answer, Watch asks again.
func Watch(ctx context.Context, cloud string, trouble func(error)) (Notice, error) {
	m := machine{base: "http://169.254.169.254", client: &http.Client{}}
	ask := map[string]func(context.Context) (Notice, error){"aws": m.aws, "gcp": m.gcp, "azure": m.azure}[cloud]
	if ask == nil {
		return Notice{}, fmt.Errorf("cloud %q: %s", cloud, strings.Join(Clouds, ", "))
	}
	return watch(ctx, ask, trouble)
}

func watch(ctx context.Context, ask func(context.Context) (Notice, error), trouble func(error)) (Notice, error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for said := ""; ; {
		n, err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return Notice{}, context.Cause(ctx)
		case err == nil && n != Notice{}:
			return n, nil
		case err != nil && err.Error() != said:
			said = err.Error()
			trouble(fmt.Errorf("cannot ask the cloud whether it takes this machine back: %w", err))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Notice{}, context.Cause(ctx)
		}
	}
}

// machine asks the metadata service of the cloud's machine on which it runs.
type machine struct {
	base   string
	client *http.Client
	// token is AWS's token for the metadata service.
	token string
}

var errAbsent = errors.New("not found")

func (m *machine) get(ctx context.Context, method, path string, limit time.Duration, header ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, m.base+path, nil)
	if err != nil {
		return nil, err
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	answer, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode == http.StatusNotFound:
		return nil, errAbsent
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return text, nil
}

// aws asks the metadata service, version 2, for an interruption notice, which AWS gives two minutes
// before the end (Amazon EC2 User Guide, "Spot Instance interruption notices").
func (m *machine) aws(ctx context.Context) (Notice, error) {
	if m.token == "" {
		token, err := m.get(ctx, http.MethodPut, "/latest/api/token", answerLimit, "X-aws-ec2-metadata-token-ttl-seconds", "21600")
		if err != nil {
			return Notice{}, err
		}
		m.token = string(token)
	}
	text, err := m.get(ctx, http.MethodGet, "/latest/meta-data/spot/instance-action", answerLimit, "X-aws-ec2-metadata-token", m.token)
	switch {
	case errors.Is(err, errAbsent):
		return Notice{}, nil
	case err != nil:
		m.token = "" // get a new token next time, since this one may have expired
		return Notice{}, err
	}
	var action struct {
		Action string
		Time   time.Time
	}
	if err := json.Unmarshal(text, &action); err != nil {
		return Notice{}, fmt.Errorf("spot/instance-action: %w", err)
	}
	return Notice{action.Time, "AWS will " + action.Action + " this spot instance"}, nil
}

// gcp waits for a preemption (Compute Engine documentation, "Spot VMs": the ACPI signal comes 30
// seconds before the end).
func (m *machine) gcp(ctx context.Context) (Notice, error) {
	text, err := m.get(ctx, http.MethodGet, "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=300", changeLimit,
		"Metadata-Flavor", "Google")
	if err != nil || strings.TrimSpace(string(text)) != "TRUE" {
		return Notice{}, err
	}
	return Notice{time.Now().Add(gcpTime), "Google preempts this machine"}, nil
}

// azure asks for scheduled events (Azure documentation, "Scheduled Events for Linux VMs").
func (m *machine) azure(ctx context.Context) (Notice, error) {
	text, err := m.get(ctx, http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", answerLimit, "Metadata", "true")
	if err != nil {
		return Notice{}, err
	}
	var all struct {
		Events []struct{ EventType, NotBefore string }
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return Notice{}, fmt.Errorf("scheduledevents: %w", err)
	}
	for _, e := range all.Events {
		if e.EventType != "Preempt" && e.EventType != "Terminate" {
			continue
		}
		at, err := time.Parse(time.RFC1123, e.NotBefore)
		if err != nil { // an event that has begun has no time
			at = time.Now().Add(gcpTime)
		}
		return Notice{at, "Azure's event " + e.EventType + " is scheduled for this machine"}, nil
	}
	return Notice{}, nil
}
