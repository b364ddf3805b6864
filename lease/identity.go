package lease

import (
	"fmt"
	"strings"
)

// instanceLength is the length of the random id that tells two processes of one name apart.
const instanceLength = 8

// holderName is Options.Holder with the id of this instance, which all clients of one store share, and a number of its own for
// each but the first of them.
func (s *shared) holderName(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	if s.clients == 1 {
		return name + ":" + s.instance
	}
	return fmt.Sprintf("%s:%s.%d", name, s.instance, s.clients)
}

// Namesake tells whether holder, as in a HeldError or an Info, is another instance that was given this client's
// Options.Holder: a second process that runs under the same name, or a former one that was killed and whose lease has not
// ended yet. Clients that With derives from one another are no namesakes.
func (c *Client) Namesake(holder string) bool {
	id, ok := strings.CutPrefix(holder, c.opt.Holder+":")
	if !ok {
		return false
	}
	id, _, _ = strings.Cut(id, ".")
	return len(id) == instanceLength && !strings.Contains(id, ":") && id != c.instance
}

// observeNamesake tells once for each lock and other instance that a namesake has the lock.
func (c *Client) observeNamesake(h *HeldError) {
	if !c.Namesake(h.Holder) {
		return
	}
	c.mu.Lock()
	known := c.namesakes[h.Name] == h.Holder
	c.namesakes[h.Name] = h.Holder
	c.mu.Unlock()
	if !known {
		c.observe(Event{Kind: Namesake, Name: h.Name, Err: h})
	}
}

// forgetNamesake lets the next namesake on name be told.
func (c *Client) forgetNamesake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namesakes, name)
}
