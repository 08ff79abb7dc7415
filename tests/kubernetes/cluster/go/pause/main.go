// pause is the first process of a pod, and of the node itself: it holds their namespaces, buries the
// orphans, and ends when it is told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for each := range signals {
		if each != syscall.SIGCHLD {
			return
		}
		for {
			buried, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == nil && buried <= 0 || err != nil && err != syscall.EINTR {
				break
			}
		}
	}
}
