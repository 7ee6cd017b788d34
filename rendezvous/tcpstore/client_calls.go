package tcpstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// Set stores a value. As in torch, Set has no reply, and neither have [Client.MultiSet],
// [Client.Append] and [Client.QueuePush]. When the call returns, another client may therefore not
// see the value yet. If the store refuses the value, the next call fails.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, ask(protocol.OpSet).key(key).value(value), nil)
}

// Get returns the value of a key. It waits until the key exists.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := c.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// MultiGet returns the values of keys, in order. It waits until all keys exist.
func (c *Client) MultiGet(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = c.wait(ctx, keys, func() error {
		if err := c.send(ask(protocol.OpMultiGet).keys(keys)); err != nil {
			return err
		}
		for range keys {
			value, err := c.readValue()
			if err != nil {
				return err
			}
			values = append(values, value)
		}
		return nil
	})
	return values, err
}

// MultiSet stores a value for each key, all at once.
func (c *Client) MultiSet(ctx context.Context, values map[string][]byte) error {
	r := ask(protocol.OpMultiSet).int(int64(len(values)))
	for key, value := range values {
		r = r.key(key).value(value)
	}
	if len(values) > protocol.MaxKeys {
		r.err = fmt.Errorf("%d keys are too many: the limit is %d", len(values), protocol.MaxKeys)
	}
	return c.call(ctx, r, nil)
}

// Append adds to the end of a key's value, and creates the key if necessary.
func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, ask(protocol.OpAppend).key(key).value(value), nil)
}

// CompareSet stores desired if the key has the expected value, or if it does not exist and expected
// is empty. It returns the value that the key then has. If the key still does not exist, it returns
// expected, as torch does.
func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) (value []byte, err error) {
	err = c.call(ctx, ask(protocol.OpCompareSet).key(key).value(expected).value(desired), func(context.Context) (err error) {
		value, err = c.readValue()
		return err
	})
	return value, err
}

// Add adds to a counter and returns its new value. The store keeps the counter as decimal digits. A
// new key counts from 0.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return c.count(ctx, ask(protocol.OpAdd).key(key).int(delta))
}

// NumKeys returns the number of keys, torch's own included. Queues do not count.
func (c *Client) NumKeys(ctx context.Context) (int64, error) {
	return c.count(ctx, ask(protocol.OpNumKeys))
}

// DeleteKey deletes a key and says whether it existed.
func (c *Client) DeleteKey(ctx context.Context, key string) (bool, error) {
	n, err := c.count(ctx, ask(protocol.OpDeleteKey).key(key))
	return n > 0, err
}

func (c *Client) count(ctx context.Context, r request) (n int64, err error) {
	err = c.call(ctx, r, func(context.Context) (err error) {
		n, err = c.readInt()
		return err
	})
	return n, err
}

// Check reports whether all keys exist. A queue counts as a key that exists if it is not empty.
func (c *Client) Check(ctx context.Context, keys ...string) (exist bool, err error) {
	err = c.call(ctx, ask(protocol.OpCheck).keys(keys), func(context.Context) error {
		b, err := c.replies.ReadByte()
		exist = b == protocol.Ready
		return err
	})
	return exist && err == nil, err
}

// Wait waits until all keys exist. A queue counts as a key that exists if it is not empty.
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	return c.wait(ctx, keys, func() error { return nil })
}

// wait calls the function then once all keys exist. It makes no other call of this client in
// between.
func (c *Client) wait(ctx context.Context, keys []string, then func() error) error {
	return c.call(ctx, ask(protocol.OpWait).keys(keys), func(ctx context.Context) error {
		if err := c.released(ctx, "timed out waiting for "+some(keys)); err != nil {
			return err
		}
		return then()
	})
}

// some returns the names of a few keys for an error.
func some(keys []string) string {
	if len(keys) <= maxShown {
		return fmt.Sprintf("%q", keys)
	}
	return fmt.Sprintf("%q and %d more", keys[:maxShown], len(keys)-maxShown)
}

// Barrier waits until size clients have reached the barrier. A client that gives up stays counted,
// so a key serves only one barrier (torch 2.11).
func (c *Client) Barrier(ctx context.Context, key string, size int) error {
	return c.call(ctx, ask(protocol.OpBarrier).key(key).int(int64(size)), func(ctx context.Context) error {
		return c.released(ctx, fmt.Sprintf("timed out at the barrier %q waiting for %d", key, size))
	})
}

// ListKeys returns the keys that clients have created, in no order, without torch's own keys (torch
// 2.10).
func (c *Client) ListKeys(ctx context.Context) (keys []string, err error) {
	err = c.call(ctx, ask(protocol.OpListKeys), func(context.Context) error {
		n, err := c.readInt()
		for range n {
			key, err := c.readValue()
			if err != nil {
				return err
			}
			if name, ok := strings.CutPrefix(string(key), prefix); ok {
				keys = append(keys, name)
			}
		}
		return err
	})
	return keys, err
}

// QueuePush adds a value to the end of a queue (torch 2.8, libuv only).
func (c *Client) QueuePush(ctx context.Context, queue string, value []byte) error {
	return c.call(ctx, ask(protocol.OpQueuePush).key(queue).value(value), nil)
}

// QueuePop removes and returns the first value of a queue. It waits until the queue has a value.
func (c *Client) QueuePop(ctx context.Context, queue string) (value []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for ok := false; err == nil && !ok; { // another client may take the value that ended the wait
		err = c.wait(ctx, []string{queue}, func() (err error) {
			if err = c.send(ask(protocol.OpQueuePop).key(queue)); err == nil {
				value, ok, err = c.popped()
			}
			return err
		})
	}
	return value, err
}

// QueueTryPop removes and returns the first value of a queue, if there is one.
func (c *Client) QueueTryPop(ctx context.Context, queue string) (value []byte, ok bool, err error) {
	err = c.call(ctx, ask(protocol.OpQueuePop).key(queue), func(context.Context) (err error) {
		value, ok, err = c.popped()
		return err
	})
	return value, ok, err
}

// popped reads the reply to a pop: the number of values, and the first value if there is one.
func (c *Client) popped() ([]byte, bool, error) {
	n, err := c.readInt()
	if err != nil || n == 0 {
		return nil, false, err
	}
	value, err := c.readValue()
	return value, err == nil, err
}

// QueueLen returns the number of values in a queue.
func (c *Client) QueueLen(ctx context.Context, queue string) (int64, error) {
	return c.count(ctx, ask(protocol.OpQueueLen).key(queue))
}
