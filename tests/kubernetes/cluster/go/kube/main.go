// kube is every server of a Kubernetes with one node; the first argument says which.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // a CronJob may name a zone that the machine does not know

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func server(name string) *cobra.Command {
	switch name {
	case "apiserver":
		return apiserver.NewAPIServerCommand()
	case "controllers":
		return controllers.NewControllerManagerCommand()
	case "scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	}
	return nil
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := server(name)
	if command == nil {
		fmt.Fprintln(os.Stderr, "kube etcd|apiserver|controllers|scheduler|kubelet ARGUMENT...")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
