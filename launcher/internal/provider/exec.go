package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
)

// Exec asks a command for nodes. docs/capacity.md describes what it sends to the command and
// expects from it. Command has at least one word.
type Exec struct {
	Kind    string
	Command []string
	Agent   Agent
}

// request is the command's standard input, and answer is its output.
type (
	request struct {
		Operation string `json:"operation"`
		Kind      string `json:"kind"`
		// Nodes is set for create and delete.
		Nodes []requestedNode `json:"nodes,omitempty"`
	}
	requestedNode struct {
		Tag string `json:"tag"`
		// Agent is the command line that the node must run; it is set only for create.
		Agent []string `json:"agent,omitempty"`
	}
	answer struct {
		Nodes []struct {
			Tag   string `json:"tag"`
			State string `json:"state"`
		} `json:"nodes"`
	}
)

// Create implements rendezvous.Provider.
func (p Exec) Create(ctx context.Context, tags []string) error {
	r := request{Operation: "create"}
	for _, tag := range tags {
		r.Nodes = append(r.Nodes, requestedNode{tag, p.Agent.command(tag)})
	}
	_, err := p.call(ctx, r)
	return err
}

// Delete implements rendezvous.Provider.
func (p Exec) Delete(ctx context.Context, tags []string) error {
	r := request{Operation: "delete"}
	for _, tag := range tags {
		r.Nodes = append(r.Nodes, requestedNode{Tag: tag})
	}
	_, err := p.call(ctx, r)
	return err
}

// List implements rendezvous.Provider.
func (p Exec) List(ctx context.Context) (map[string]string, error) {
	out, err := p.call(ctx, request{Operation: "list"})
	if err != nil {
		return nil, err
	}
	var a answer
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	err = d.Decode(&a)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows the answer")
	}
	if err != nil {
		return nil, errNonsense(p.Command[0], out, err)
	}
	states := map[string]string{}
	for _, n := range a.Nodes {
		states[n.Tag] = n.State
	}
	return states, nil
}

func (p Exec) call(ctx context.Context, r request) ([]byte, error) {
	r.Kind = p.Kind
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return run(ctx, b, p.Command[0], p.Command[1:]...)
}

// Line implements Provider.
func (p Exec) Line(string) []string { return p.Command }
