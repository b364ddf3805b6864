package lease

import "time"

// Pause is the pause of one who has just looked.
func Pause(age time.Duration, same bool, hold, pace, ttl time.Duration) time.Duration {
	return sight{age: age, same: same, hold: hold, pace: pace}.pause(ttl)
}

// Yield is the pause of one who has just had the lock.
func Yield(hold, pace, ttl time.Duration, vain int) time.Duration {
	return sight{own: true, hold: hold, pace: pace, vain: vain}.pause(ttl)
}

// The parts of a pace.
var (
	Slower = slower
	Faster = faster
	Due    = due
	Within = within
)

// Remembered is for how many locks c remembers who else wants them.
func (c *Client) Remembered() int { return len(c.crowds.locks) }

// MaxRemembered bounds it.
const MaxRemembered = maxCrowds

// Pace is that of c's waits for name.
func (c *Client) Pace(name string) time.Duration {
	c.crowds.mu.Lock()
	defer c.crowds.mu.Unlock()
	if crowd := c.crowds.locks[name]; crowd != nil {
		return crowd.pace
	}
	return 0
}
