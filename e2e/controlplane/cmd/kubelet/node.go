package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// node keeps the Node object: where the kubelet listens, and that it is ready.
type node struct {
	client kubernetes.Interface
	lister corelisters.NodeLister
	name   string
	port   int32
}

func newNode(client kubernetes.Interface, factory informers.SharedInformerFactory, name string, port int) *node {
	return &node{client: client, lister: factory.Core().V1().Nodes().Lister(), name: name, port: int32(port)}
}

// run registers the node, and registers it again when it or its state is gone, which an emptied etcd brings about. Only
// the informer's memory is asked, so a test that watches the apiserver sees no traffic from here.
func (n *node) run(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := n.lister.Get(n.name)
		if apierrors.IsNotFound(err) || (err == nil && found.Status.DaemonEndpoints.KubeletEndpoint.Port != n.port) {
			if err := n.register(ctx); err != nil {
				klog.ErrorS(err, "cannot register the node")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

func (n *node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	labels := map[string]string{corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux"}
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	object, err := nodes.Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The taint a new node has until it is ready; the controller that takes it away does not run here.
	object.Spec.Taints = nil
	if object, err = nodes.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	now := metav1.Now()
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	object.Status = corev1.NodeStatus{
		Capacity:    resources,
		Allocatable: resources,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			{Type: corev1.NodeHostName, Address: n.name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.port}},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status", LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "none://0",
		},
	}
	_, err = nodes.UpdateStatus(ctx, object, metav1.UpdateOptions{})
	return err
}
