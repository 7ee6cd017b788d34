package tcpstore

// changes are the keys whose cached values proxies must not use any more, the newest last. A key
// whose value has changed is never cached again. So a key occurs only once, except if it is deleted
// and created again.
type changes struct {
	// version counts the changes. A proxy sends the version up to which it knows the changes.
	version uint64
	keys    []string
	bytes   int
	// most is how many changes a store remembers.
	most int
}

const (
	// maxChanges and maxChangedBytes bound the changes that a store remembers, and so the changes
	// that it reports in a round. A proxy that has missed more changes drops its cache.
	maxChanges      = 256
	maxChangedBytes = 16 << 10
)

func (c *changes) add(key string) {
	c.version++
	c.keys = append(c.keys, key)
	for c.bytes += len(key); len(c.keys) > c.most || c.bytes > maxChangedBytes; c.keys = c.keys[1:] {
		c.bytes -= len(c.keys[0])
	}
}

// since returns the keys that have changed since a version. all is true if these keys are not
// remembered any more.
func (c *changes) since(version uint64) (keys []string, all bool) {
	n := c.version - version
	if n > uint64(len(c.keys)) {
		return nil, true
	}
	return c.keys[uint64(len(c.keys))-n:], false
}
