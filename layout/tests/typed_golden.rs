//! Golden vectors as programs in typed layouts. Written by `typed_golden_source.rs`; do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]

mod check;

use check::is;
use tilewright_layout::typed::*;

#[test]
fn blocked_product() {
    is::<BlockedProduct<Strided<(Int<2>, Int<5>), (Int<5>, Int<1>)>, Strided<(Int<3>, Int<4>), (Int<1>, Int<3>)>>>("layout/blocked_product-0000", "((2,3),(5,4)):((5,10),(1,30))");
    is::<BlockedProduct<Strided<Int<4>, Int<1>>, Strided<(Int<3>,), (Int<1>,)>>>("layout/blocked_product-0012", "((4,(3))):((1,(4)))");
    is::<BlockedProduct<Strided<((Int<2>, Int<1>), (Int<2>, Int<2>)), ((Int<4>, Int<4>), (Int<2>, Int<1>))>, Strided<(Int<2>, ((Int<1>,), (Int<1>, Int<1>)), Int<2>, Int<4>), (Int<8>, ((Int<0>,), (Int<0>, Int<0>)), Int<4>, Int<1>)>>>("layout/blocked_product-0025", "(((2,1),2),((2,2),((1),(1,1))),(1,2),(1,4)):(((4,4),64),((2,1),((0),(0,0))),(0,32),(0,8))");
    is::<BlockedProduct<Strided<(Int<3>, (Int<4>, Int<5>)), (Int<20>, (Int<5>, Int<1>))>, Strided<(Int<1>, Int<10>, Int<2>, Int<1>), (Int<0>, Int<1>, Int<10>, Int<0>)>>>("layout/blocked_product-0035", "((3,1),((4,5),10),(1,2),(1,1)):((20,0),((5,1),60),(0,600),(0,0))");
    is::<BlockedProduct<Strided<Int<16>, Int<1>>, Strided<(Int<16>,), (Int<1>,)>>>("layout/blocked_product-0048", "((16,(16))):((1,(16)))");
    is::<BlockedProduct<Strided<((Int<4>, Int<1>), (Int<4>, Int<4>)), ((Int<12>, Int<0>), (Int<48>, Int<2>))>, Strided<(Int<2>, Int<8>), (Int<1>, Int<2>)>>>("layout/blocked_product-0061", "(((4,1),2),((4,4),8)):(((12,0),1),((48,2),192))");
    is::<BlockedProduct<Strided<(Int<2>, Int<4>, Int<8>), (Int<4>, Int<1>, Int<8>)>, Strided<(Int<5>, Int<2>), (Int<2>, Int<1>)>>>("layout/blocked_product-0075", "((2,5),(4,2),(8,1)):((4,128),(1,64),(8,0))");
    is::<BlockedProduct<Strided<(Int<3>, Int<2>, Int<3>, Int<2>), (Int<12>, Int<6>, Int<2>, Int<1>)>, Strided<((Int<2>, Int<2>), Int<2>, Int<2>, Int<1>), ((Int<0>, Int<2>), Int<4>, Int<1>, Int<0>)>>>("layout/blocked_product-0087", "((3,(2,2)),(2,2),(3,2),(2,1)):((12,(0,72)),(6,144),(2,36),(1,0))");
    is::<BlockedProduct<Strided<(Int<4>, (Int<4>,)), (Int<4>, (Int<1>,))>, Strided<(Int<4>, Int<2>, Int<2>), (Int<1>, Int<4>, Int<8>)>>>("layout/blocked_product-0101", "((4,4),((4),2),(1,2)):((4,16),((1),64),(0,128))");
    is::<BlockedProduct<Strided<(Int<4>, Int<2>, Int<2>), (Int<1>, Int<4>, Int<8>)>, Strided<((Int<8>,), (Int<2>,)), ((Int<2>,), (Int<1>,))>>>("layout/blocked_product-0120", "((4,(8)),(2,(2)),(2,1)):((1,(32)),(4,(16)),(8,0))");
    is::<BlockedProduct<Strided<(Int<8>, Int<1>, Int<1>), (Int<1>, Int<0>, Int<0>)>, Strided<(Int<2>, Int<4>), (Int<4>, Int<1>)>>>("layout/blocked_product-0135", "((8,2),(1,4),(1,1)):((1,32),(0,8),(0,0))");
    is::<BlockedProduct<Strided<(Int<4>,), (Int<1>,)>, Strided<(Int<1>,), (Int<0>,)>>>("layout/blocked_product-0148", "((4,1)):((1,0))");
    is::<BlockedProduct<Strided<(Int<2>, Int<9>), (Int<9>, Int<1>)>, Strided<((Int<4>,), Int<3>), ((Int<3>,), Int<1>)>>>("layout/blocked_product-0161", "((2,(4)),(9,3)):((9,(54)),(1,18))");
    is::<BlockedProduct<Strided<(Int<6>, Int<4>, Int<1>), (Int<4>, Int<1>, Int<0>)>, Strided<(Int<2>, Int<4>, Int<2>), (Int<1>, Int<2>, Int<8>)>>>("layout/blocked_product-0172", "((6,2),(4,4),(1,2)):((4,24),(1,48),(0,192))");
    is::<BlockedProduct<Strided<(Int<8>, Int<6>), (Int<6>, Int<1>)>, Strided<(Int<4>, Int<2>, Int<2>), (Int<0>, Int<1>, Int<0>)>>>("layout/blocked_product-0184", "((8,4),(6,2),(1,2)):((6,0),(1,48),(0,0))");
    is::<BlockedProduct<Strided<Int<2>, Int<1>>, Strided<(Int<3>, Int<2>, Int<1>, Int<1>), (Int<2>, Int<1>, Int<2>, Int<5>)>>>("layout/blocked_product-0196", "((2,3),(1,2),(1,1),(1,1)):((1,4),(0,2),(0,4),(0,10))");
    is::<BlockedProduct<Strided<(Int<2>,), (Int<1>,)>, Strided<(Int<1>, Int<3>, Int<2>, Int<4>), (Int<0>, Int<8>, Int<4>, Int<1>)>>>("layout/blocked_product-0204", "((2,1),(1,3),(1,2),(1,4)):((1,0),(0,16),(0,8),(0,2))");
    is::<BlockedProduct<Strided<((Int<12>, Int<2>),), ((Int<1>, Int<12>),)>, Strided<(Int<2>, Int<4>, Int<2>), (Int<8>, Int<2>, Int<1>)>>>("layout/blocked_product-0217", "(((12,2),2),(1,4),(1,2)):(((1,12),192),(0,48),(0,24))");
    is::<BlockedProduct<Strided<(Int<1>, Int<1>), (Int<0>, Int<0>)>, Strided<(Int<2>,), (Int<1>,)>>>("layout/blocked_product-0228", "((1,2),(1,1)):((0,1),(0,0))");
}

#[test]
fn coalesce() {
    is::<Coalesced<Strided<Int<1>, Int<1>>>>("layout/coalesce-0001", "1:0");
    is::<Coalesced<Strided<Int<7>, Int<3>>>>("layout/coalesce-0016", "7:3");
    is::<Coalesced<Strided<(Int<4>, Int<2>), (Int<1>, Int<1>)>>>("layout/coalesce-0031", "(4,2):(1,1)");
    is::<Coalesced<Strided<(Int<3>, (Int<5>, Int<7>)), (Int<35>, (Int<7>, Int<1>))>>>("layout/coalesce-0051", "(3,5,7):(35,7,1)");
    is::<Coalesced<Strided<(Int<2>, Int<3>, Int<4>, Int<5>), (Int<0>, Int<1>, Int<0>, Int<3>)>>>("layout/coalesce-0062", "(2,3,4,5):(0,1,0,3)");
    is::<Coalesced<Strided<(Int<8>, Int<16>), (Int<16>, Int<1>)>>>("layout/coalesce-0081", "(8,16):(16,1)");
    is::<Coalesced<Strided<(Int<4>, Int<4>), (Int<4>, Int<-1>)>>>("layout/coalesce-0101", "(4,4):(4,-1)");
    is::<Coalesced<Strided<(Int<3>, Int<2>, Int<8>), (Int<192>, Int<2>, Int<12>)>>>("layout/coalesce-0141", "(3,2,8):(192,2,12)");
    is::<Coalesced<Strided<((Int<16>,), Int<8>, Int<2>), ((Int<4>,), Int<64>, Int<1>)>>>("layout/coalesce-0158", "(128,2):(4,1)");
    is::<Coalesced<Strided<((Int<4>, Int<4>),), ((Int<1>, Int<4>),)>>>("layout/coalesce-0172", "16:1");
    is::<Coalesced<Strided<(Int<2>, Int<2>, Int<1>), (Int<0>, Int<1>, Int<2>)>>>("layout/coalesce-0186", "(2,2):(0,1)");
    is::<Coalesced<Strided<(Int<2>, Int<2>, Int<4>, Int<4>), (Int<1>, Int<2>, Int<4>, Int<16>)>>>("layout/coalesce-0201", "64:1");
    is::<Coalesced<Strided<(Int<8>, Int<4>), (Int<1>, Int<8>)>>>("layout/coalesce-0215", "32:1");
    is::<Coalesced<Strided<(Int<2>, Int<4>, Int<2>), (Int<8>, Int<16>, Int<1>)>>>("layout/coalesce-0227", "(8,2):(8,1)");
    is::<Coalesced<Strided<((Int<12>, Int<1>),), ((Int<1>, Int<0>),)>>>("layout/coalesce-0242", "12:1");
    is::<Coalesced<Strided<(Int<2>, Int<4>), (Int<32>, Int<4>)>>>("layout/coalesce-0257", "(2,4):(32,4)");
    is::<Coalesced<Strided<(Int<2>, ((Int<3>, Int<1>),), Int<3>, Int<4>), (Int<72>, ((Int<4>, Int<0>),), Int<24>, Int<1>)>>>("layout/coalesce-0272", "(2,3,3,4):(72,4,24,1)");
    is::<Coalesced<Strided<(Int<3>, Int<9>, Int<5>), (Int<9>, Int<1>, Int<27>)>>>("layout/coalesce-0283", "(3,9,5):(9,1,27)");
    is::<Coalesced<Strided<(Int<4>, Int<16>, Int<4>), (Int<64>, Int<4>, Int<1>)>>>("layout/coalesce-0297", "(4,16,4):(64,4,1)");
}

#[test]
fn complement() {
    is::<Complement<Strided<Int<1>, Int<0>>, 1>>("layout/complement-0087", "1:0");
    is::<Complement<Strided<(Int<1>, Int<1>, Int<1>), (Int<1>, Int<1>, Int<1>)>, 64>>("layout/complement-0106", "64:1");
    is::<Complement<Strided<((Int<8>,),), ((Int<1>,),)>, 64>>("layout/complement-0126", "8:8");
    is::<Complement<Strided<(Int<4>, Int<2>), (Int<1>, Int<4>)>, 1>>("layout/complement-0152", "1:0");
    is::<Complement<Strided<(Int<4>, Int<2>), (Int<1>, Int<8>)>, 64>>("layout/complement-0171", "(2,4):(4,16)");
    is::<Complement<Strided<((Int<2>, (Int<2>, Int<2>)), Int<3>), ((Int<1>, (Int<2>, Int<4>)), Int<8>)>, 1>>("layout/complement-0197", "1:0");
    is::<Complement<Strided<(Int<5>, Int<4>), (Int<4>, Int<1>)>, 1>>("layout/complement-0217", "1:0");
    is::<Complement<Strided<Int<4>, Int<2>>, 5>>("layout/complement-0251", "2:1");
    is::<Complement<Strided<Int<8>, Int<1>>, 16>>("layout/complement-0293", "2:8");
    is::<Complement<Strided<((Int<9>,), ((Int<2>,),), Int<3>), ((Int<2>,), ((Int<1>,),), Int<18>)>, 54>>("layout/complement-0315", "1:0");
    is::<Complement<Strided<Int<8>, Int<1>>, 225>>("layout/complement-0341", "29:8");
    is::<Complement<Strided<(Int<2>,), (Int<4>,)>, 20>>("layout/complement-0381", "(4,3):(1,8)");
    is::<Complement<Strided<(Int<2>, Int<2>, Int<16>), (Int<1>, Int<32>, Int<2>)>, 149>>("layout/complement-0400", "3:64");
    is::<Complement<Strided<(Int<4>, Int<4>), (Int<4>, Int<1>)>, 16>>("layout/complement-0428", "1:0");
    is::<Complement<Strided<(Int<8>, Int<16>, Int<2>), (Int<3>, Int<24>, Int<384>)>, 2298>>("layout/complement-0456", "(3,3):(1,768)");
    is::<Complement<Strided<(Int<4>, Int<6>, Int<2>), (Int<12>, Int<2>, Int<1>)>, 48>>("layout/complement-0484", "1:0");
    is::<Complement<Strided<(Int<2>, Int<10>, Int<5>), (Int<30>, Int<1>, Int<64>)>, 280>>("layout/complement-0515", "3:10");
    is::<Complement<Strided<(Int<4>, (Int<2>, Int<1>)), (Int<2>, (Int<1>, Int<0>))>, 8>>("layout/complement-0542", "1:0");
    is::<Complement<Strided<(Int<2>, Int<6>, Int<2>), (Int<12>, Int<1>, Int<6>)>, 48>>("layout/complement-0569", "2:24");
    is::<Complement<Strided<(Int<1>, Int<2>, (Int<9>, Int<2>)), (Int<0>, Int<9>, (Int<1>, Int<18>))>, 36>>("layout/complement-0587", "1:0");
}

#[test]
fn composition() {
    is::<Composed<Strided<Int<8>, Int<1>>, Strided<Int<4>, Int<2>>>>("layout/composition-0003", "4:2");
    is::<ComposedByMode<Strided<(Int<8>, Int<4>), (Int<4>, Int<1>)>, Int<4>>>("layout/composition-0047", "4:4");
    is::<Composed<Strided<(Int<6>, Int<4>, Int<4>, Int<2>), (Int<32>, Int<8>, Int<2>, Int<1>)>, Strided<(Int<48>,), (Int<1>,)>>>("layout/composition-0091", "((6,4,2)):((32,8,2))");
    is::<Composed<Strided<(Int<3>,), (Int<1>,)>, Strided<Int<1>, Int<3>>>>("layout/composition-0138", "1:3");
    is::<Composed<Strided<(Int<8>,), (Int<3>,)>, Strided<(Int<2>, Int<1>), (Int<1>, Int<1>)>>>("layout/composition-0188", "(2,1):(3,3)");
    is::<Composed<Strided<(Int<10>, Int<10>, Int<3>), (Int<3>, Int<31>, Int<1>)>, Strided<((Int<2>, Int<3>), (Int<5>, Int<3>)), ((Int<1>, Int<0>), (Int<2>, Int<100>))>>>("layout/composition-0240", "((2,3),(5,3)):((3,0),(6,1))");
    is::<Composed<Strided<(Int<8>, Int<2>, Int<2>, Int<2>), (Int<8>, Int<4>, Int<2>, Int<1>)>, Strided<(Int<1>,), (Int<2>,)>>>("layout/composition-0287", "(1):(1)");
    is::<Composed<Strided<(Int<2>,), (Int<4>,)>, Strided<(Int<7>,), (Int<4>,)>>>("layout/composition-0337", "(7):(16)");
    is::<Composed<Strided<(Int<1>, Int<4>, Int<4>, Int<3>), (Int<0>, Int<1>, Int<4>, Int<16>)>, Strided<(((Int<4>, Int<4>),), Int<1>, Int<2>), (((Int<4>, Int<1>),), Int<1>, Int<0>)>>>("layout/composition-0385", "(((4,4)),1,2):(((4,1)),1,0)");
    is::<Composed<Strided<(Int<3>, Int<4>, Int<9>), (Int<27>, Int<81>, Int<3>)>, Strided<Int<4>, Int<6>>>>("layout/composition-0440", "(2,2):(162,3)");
    is::<Composed<Strided<(Int<8>, Int<2>, Int<4>, Int<3>), (Int<24>, Int<12>, Int<3>, Int<1>)>, Strided<Int<4>, Int<4>>>>("layout/composition-0483", "(2,2):(96,12)");
    is::<ComposedByMode<Strided<(Int<1>, Int<12>), (Int<1>, Int<1>)>, (Keep,)>>("layout/composition-0523", "(1):(1)");
    is::<ComposedByMode<Strided<((Int<16>, Int<1>), Int<16>), ((Int<1>, Int<2>), Int<0>)>, ((Keep, Strided<(Int<1>,), (Int<0>,)>),)>>("layout/composition-0573", "((16,(1))):((1,(0)))");
    is::<ComposedByMode<Strided<((Int<4>, Int<3>), (Int<3>, Int<3>)), ((Int<1>, Int<4>), (Int<12>, Int<36>))>, (Strided<(Int<4>, Int<3>), (Int<1>, Int<0>)>, Int<1>)>>("layout/composition-0613", "((4,3),1):((1,0),12)");
    is::<ComposedByMode<Strided<(Int<8>,), (Int<0>,)>, (Strided<Int<8>, Int<1>>,)>>("layout/composition-0661", "(8):(0)");
    is::<ComposedByMode<Strided<((Int<16>, Int<2>),), ((Int<1>, Int<16>),)>, Int<1>>>("layout/composition-0705", "1:1");
    is::<ComposedByMode<Strided<(Int<4>,), (Int<1>,)>, (Int<4>,)>>("layout/composition-0755", "(4):(1)");
    is::<Composed<Strided<(Int<10>, Int<8>), (Int<1>, Int<20>)>, Strided<Int<4>, Int<2>>>>("layout/composition-0803", "4:2");
    is::<Composed<Strided<(Int<6>, Int<8>), (Int<8>, Int<1>)>, Strided<Int<6>, Int<3>>>>("layout/composition-0846", "(2,3):(24,1)");
    is::<Composed<Strided<(Int<1>, Int<9>), (Int<0>, Int<4>)>, Strided<(Int<1>, Int<4>, Int<8>), (Int<1>, Int<-1>, Int<4>)>>>("layout/composition-0890", "(1,4,8):(4,-4,16)");
}

#[test]
fn downcast() {
    is::<Downcast<Strided<(Int<8>, Int<4>), (Int<1>, Int<8>)>, 2>>("layout/downcast-0001", "(16,4):(1,16)");
    is::<Downcast<Strided<(Int<8>, Int<4>), (Int<0>, Int<1>)>, 2>>("layout/downcast-0013", "(8,8):(0,1)");
    is::<Downcast<Strided<((Int<2>, Int<4>), Int<4>), ((Int<1>, Int<2>), Int<8>)>, 16>>("layout/downcast-0029", "((32,4),4):((1,32),128)");
    is::<Downcast<Strided<(Int<4>, Int<8>), (Int<8>, Int<1>)>, 1>>("layout/downcast-0042", "(4,8):(8,1)");
    is::<Downcast<Strided<(Int<6>,), (Int<1>,)>, 16>>("layout/downcast-0053", "(96):(1)");
    is::<Downcast<Strided<(Int<4>, Int<1>), (Int<1>, Int<4>)>, 8>>("layout/downcast-0064", "(32,1):(1,32)");
    is::<Downcast<Strided<(((Int<3>,),), Int<3>, (Int<3>,), Int<2>), (((Int<3>,),), Int<18>, (Int<1>,), Int<9>)>, 2>>("layout/downcast-0074", "(((3)),3,(6),2):(((6)),36,(1),18)");
    is::<Downcast<Strided<(Int<1>, Int<9>, Int<9>), (Int<81>, Int<1>, Int<9>)>, 2>>("layout/downcast-0084", "(1,18,9):(162,1,18)");
    is::<Downcast<Strided<(Int<2>,), (Int<1>,)>, 8>>("layout/downcast-0095", "(16):(1)");
    is::<Downcast<Strided<(Int<2>,), (Int<1>,)>, 2>>("layout/downcast-0108", "(4):(1)");
    is::<Downcast<Strided<(Int<2>, Int<8>, Int<2>, Int<4>), (Int<64>, Int<8>, Int<4>, Int<1>)>, 16>>("layout/downcast-0120", "(2,8,2,64):(1024,128,64,1)");
    is::<Downcast<Strided<(((Int<1>, Int<3>),), (Int<1>, (Int<9>,)), Int<2>, Int<2>), (((Int<0>, Int<36>),), (Int<0>, (Int<4>,)), Int<2>, Int<1>)>, 16>>("layout/downcast-0133", "(((1,3)),(1,(9)),2,32):(((0,576)),(0,(64)),32,1)");
    is::<Downcast<Strided<(Int<2>, Int<3>, (Int<5>, Int<2>)), (Int<30>, Int<10>, (Int<2>, Int<1>))>, 8>>("layout/downcast-0144", "(2,3,(5,16)):(240,80,(16,1))");
    is::<Downcast<Strided<Int<7>, Int<1>>, 2>>("layout/downcast-0158", "14:1");
    is::<Downcast<Strided<((Int<3>, Int<3>, Int<2>),), ((Int<6>, Int<2>, Int<1>),)>, 4>>("layout/downcast-0172", "((3,3,8)):((24,8,1))");
    is::<Downcast<Strided<(Int<8>, Int<2>, Int<2>, (Int<4>,)), (Int<2>, Int<64>, Int<1>, (Int<16>,))>, 3>>("layout/downcast-0180", "(8,2,6,(4)):(6,192,1,(48))");
    is::<Downcast<Strided<(Int<2>, Int<2>, Int<4>, (Int<10>,)), (Int<20>, Int<10>, Int<40>, (Int<1>,))>, 2>>("layout/downcast-0193", "(2,2,4,(20)):(40,20,80,(1))");
    is::<Downcast<Strided<(Int<1>, Int<5>, ((Int<1>, Int<2>), Int<12>, Int<2>)), (Int<0>, Int<1>, ((Int<0>, Int<5>), Int<10>, Int<120>))>, 3>>("layout/downcast-0207", "(1,15,((1,2),12,2)):(0,1,((0,15),30,360))");
}

#[test]
fn filter() {
    is::<Filtered<Strided<Int<1>, Int<0>>>>("layout/filter-0000", "1:0");
    is::<Filtered<Strided<(Int<8>,), (Int<3>,)>>>("layout/filter-0013", "8:3");
    is::<Filtered<Strided<(Int<4>, Int<2>), (Int<2>, Int<1>)>>>("layout/filter-0027", "(4,2):(2,1)");
    is::<Filtered<Strided<((Int<4>, Int<8>), Int<2>), ((Int<16>, Int<1>), Int<8>)>>>("layout/filter-0047", "(4,16):(16,1)");
    is::<Filtered<Strided<(Int<2>, Int<3>, Int<4>, Int<5>), (Int<0>, Int<1>, Int<0>, Int<3>)>>>("layout/filter-0062", "15:1");
    is::<Filtered<Strided<(Int<16>, Int<4>), (Int<4>, Int<64>)>>>("layout/filter-0075", "64:4");
    is::<Filtered<Strided<(Int<4>, Int<3>), (Int<3>, Int<1>)>>>("layout/filter-0088", "(4,3):(3,1)");
    is::<Filtered<Strided<(((Int<1>, Int<4>),), Int<3>, Int<6>), (((Int<0>, Int<54>),), Int<1>, Int<9>)>>>("layout/filter-0128", "(4,3,6):(54,1,9)");
    is::<Filtered<Strided<(Int<4>, Int<2>, Int<2>), (Int<4>, Int<2>, Int<1>)>>>("layout/filter-0147", "(4,2,2):(4,2,1)");
    is::<Filtered<Strided<(Int<4>, Int<10>), (Int<4>, Int<8>)>>>("layout/filter-0161", "(4,10):(4,8)");
    is::<Filtered<Strided<(Int<2>, Int<3>, Int<6>), (Int<18>, Int<6>, Int<1>)>>>("layout/filter-0179", "(2,3,6):(18,6,1)");
    is::<Filtered<Strided<(Int<10>,), (Int<1>,)>>>("layout/filter-0191", "10:1");
    is::<Filtered<Strided<(Int<8>, Int<2>, Int<8>), (Int<0>, Int<1>, Int<0>)>>>("layout/filter-0205", "2:1");
    is::<Filtered<Strided<(Int<5>, Int<2>, Int<3>, Int<2>), (Int<1>, Int<5>, Int<20>, Int<60>)>>>("layout/filter-0216", "(10,6):(1,20)");
    is::<Filtered<Strided<(Int<4>,), (Int<16>,)>>>("layout/filter-0228", "4:16");
    is::<Filtered<Strided<(Int<1>, Int<4>), (Int<3>, Int<3>)>>>("layout/filter-0241", "4:3");
    is::<Filtered<Strided<((Int<5>,), (Int<8>, Int<1>, Int<4>), (Int<1>, Int<1>), Int<1>), ((Int<0>,), (Int<4>, Int<7>, Int<1>), (Int<1>, Int<5>), Int<2>)>>>("layout/filter-0253", "(8,4):(4,1)");
    is::<Filtered<Strided<((Int<1>, Int<2>, Int<4>), Int<8>, Int<2>), ((Int<0>, Int<16>, Int<32>), Int<1>, Int<8>)>>>("layout/filter-0268", "(8,16):(16,1)");
    is::<Filtered<Strided<((Int<4>,), Int<4>, Int<1>), ((Int<1>,), Int<4>, Int<0>)>>>("layout/filter-0287", "16:1");
    is::<Filtered<Strided<(Int<4>, Int<2>, Int<1>), (Int<2>, Int<-1>, Int<0>)>>>("layout/filter-0490", "(4,2):(2,-1)");
}

#[test]
fn flat_divide() {
    is::<FlatDivide<Strided<(Int<4>, Int<2>, Int<3>), (Int<2>, Int<1>, Int<8>)>, Strided<Int<4>, Int<2>>>>("layout/flat_divide-0000", "(2,2,2,3):(4,1,2,8)");
    is::<FlatDivide<Strided<Int<8>, Int<1>>, Int<1>>>("layout/flat_divide-0015", "(1,8):(0,1)");
    is::<FlatDivide<Strided<(Int<3>, Int<4>, Int<5>), (Int<1>, Int<3>, Int<12>)>, (Int<3>, Int<2>, Int<5>)>>("layout/flat_divide-0030", "(3,2,5,1,2,1):(1,3,12,0,6,0)");
    is::<FlatDivide<Strided<(Int<4>, Int<4>, Int<1>), (Int<1>, Int<4>, Int<16>)>, (Strided<(Int<2>,), (Int<2>,)>, Strided<Int<2>, Int<2>>, Int<1>)>>("layout/flat_divide-0048", "((2),2,1,2,2,1):((2),8,0,1,4,0)");
    is::<FlatDivide<Strided<(Int<4>, Int<2>), (Int<1>, Int<4>)>, Strided<Int<2>, Int<4>>>>("layout/flat_divide-0067", "(2,4):(4,1)");
    is::<FlatDivide<Strided<(Int<8>, Int<4>, Int<12>), (Int<48>, Int<1>, Int<4>)>, Strided<((Int<8>, Int<2>), (Int<2>,)), ((Int<1>, Int<8>), (Int<16>,))>>>("layout/flat_divide-0082", "((8,2),(2),12):((48,1),(2),4)");
    is::<FlatDivide<Strided<(Int<8>, Int<9>), (Int<9>, Int<1>)>, (Strided<Int<8>, Int<1>>, Int<9>)>>("layout/flat_divide-0096", "(8,9,1,1):(9,1,0,0)");
    is::<FlatDivide<Strided<((Int<4>, Int<8>, Int<4>), (Int<2>, Int<2>)), ((Int<2>, Int<0>, Int<0>), (Int<1>, Int<8>))>, Strided<((Int<1>, (Int<8>,)), Int<2>, (Int<4>,)), ((Int<0>, (Int<4>,)), Int<128>, (Int<32>,))>>>("layout/flat_divide-0114", "((1,(8)),2,(4),4,2):((0,(0)),1,(0),2,8)");
    is::<FlatDivide<Strided<(Int<9>, Int<3>, Int<2>, Int<3>), (Int<24>, Int<217>, Int<1>, Int<8>)>, (Int<3>, Int<3>, Strided<(Int<2>,), (Int<1>,)>, Int<1>)>>("layout/flat_divide-0125", "(3,3,(2),1,3,1,1,3):(24,217,(1),0,72,0,0,8)");
    is::<FlatDivide<Strided<((Int<2>, Int<4>), (Int<2>, Int<2>)), ((Int<65>, Int<16>), (Int<2>, Int<4>))>, (Strided<Int<4>, Int<2>>, (Strided<Int<1>, Int<2>>, Int<2>))>>("layout/flat_divide-0143", "(4,(1,2),2,(2,1)):(16,(4,4),65,(2,0))");
    is::<FlatDivide<Strided<(Int<5>, Int<3>), (Int<1>, Int<5>)>, Strided<(Int<5>, Int<3>), (Int<1>, Int<5>)>>>("layout/flat_divide-0156", "(5,3,1):(1,5,0)");
    is::<FlatDivide<Strided<(Int<2>, Int<5>, Int<4>), (Int<20>, Int<4>, Int<1>)>, Int<1>>>("layout/flat_divide-0167", "(1,2,5,4):(0,20,4,1)");
    is::<FlatDivide<Strided<(Int<6>,), (Int<1>,)>, Strided<(((Int<6>, Int<1>),),), (((Int<1>, Int<0>),),)>>>("layout/flat_divide-0182", "((((6,1))),1):((((1,0))),0)");
    is::<FlatDivide<Strided<((Int<4>, Int<4>), (Int<1>, Int<4>)), ((Int<1>, Int<4>), (Int<2>, Int<16>))>, Strided<(Int<4>, Int<4>), (Int<1>, Int<4>)>>>("layout/flat_divide-0198", "(4,4,4):(1,4,16)");
    is::<FlatDivide<Strided<(Int<1>, Int<1>, Int<8>, Int<6>), (Int<1>, Int<1>, Int<8>, Int<12>)>, (Strided<Int<1>, Int<1>>, Strided<Int<1>, Int<1>>, Strided<((Int<2>, Int<4>),), ((Int<1>, Int<2>),)>, Int<1>)>>("layout/flat_divide-0214", "(1,1,((2,4)),1,1,1,1,6):(1,1,((8,16)),0,0,0,0,12)");
    is::<FlatDivide<Strided<(Int<8>,), (Int<1>,)>, Strided<Int<8>, Int<1>>>>("layout/flat_divide-0235", "(8,1):(1,0)");
    is::<FlatDivide<Strided<(Int<5>, Int<2>, Int<9>), (Int<18>, Int<9>, Int<1>)>, (Int<5>, Int<1>, Int<3>)>>("layout/flat_divide-0247", "(5,1,3,1,2,3):(18,0,1,0,9,3)");
    is::<FlatDivide<Strided<(Int<2>, (Int<4>, Int<2>)), (Int<1>, (Int<4>, Int<2>))>, Int<16>>>("layout/flat_divide-0263", "(2,4,2,1):(1,4,2,0)");
}

#[test]
fn flat_product() {
    is::<FlatProduct<Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>, Strided<Int<6>, Int<1>>>>("layout/flat_product-0000", "(2,2,2,3):(4,1,2,8)");
    is::<FlatProduct<Strided<Int<4>, Int<1>>, Strided<Int<1>, Int<0>>>>("layout/flat_product-0008", "(4,1):(1,0)");
    is::<FlatProduct<Strided<(Int<6>, Int<1>, Int<9>), (Int<9>, Int<0>, Int<1>)>, (Int<1>, Int<1>, Int<3>)>>("layout/flat_product-0020", "(6,1,9,1,1,3):(9,0,1,0,0,9)");
    is::<FlatProduct<Strided<(Int<3>, Int<2>, Int<9>, Int<1>), (Int<1>, Int<7>, Int<14>, Int<0>)>, (Int<3>,)>>("layout/flat_product-0037", "((3),3,2,9,1):((1),3,7,14,0)");
    is::<FlatProduct<Strided<(Int<1>, ((Int<1>,), Int<4>), Int<2>, Int<4>), (Int<0>, ((Int<0>,), Int<1>), Int<4>, Int<8>)>, Strided<(Int<4>, Int<3>, Int<2>), (Int<1>, Int<4>, Int<12>)>>>("layout/flat_product-0050", "(1,((1),4),2,4,4,3,2):(0,((0),1),4,8,32,128,384)");
    is::<FlatProduct<Strided<(Int<10>, Int<1>, Int<1>, Int<5>), (Int<1>, Int<1>, Int<1>, Int<10>)>, Strided<(Int<1>, Int<2>, Int<1>, Int<1>), (Int<0>, Int<1>, Int<0>, Int<0>)>>>("layout/flat_product-0059", "(10,1,1,5,1,2,1,1):(1,1,1,10,0,50,0,0)");
    is::<FlatProduct<Strided<((Int<1>, Int<2>), (Int<1>, Int<2>), (Int<4>,), Int<2>), ((Int<1>, Int<16>), (Int<2>, Int<1>), (Int<2>,), Int<8>)>, Int<8>>>("layout/flat_product-0069", "((1,2),(1,2),(4),2,8):((1,16),(2,1),(2),8,32)");
    is::<FlatProduct<Strided<(Int<2>, Int<2>, Int<2>), (Int<1>, Int<2>, Int<4>)>, Strided<(Int<1>,), (Int<0>,)>>>("layout/flat_product-0081", "(2,2,2,(1)):(1,2,4,(0))");
    is::<FlatProduct<Strided<((Int<3>,), (Int<10>, Int<2>)), ((Int<20>,), (Int<2>, Int<1>))>, (Int<1>,)>>("layout/flat_product-0093", "(((3)),1,(10,2)):(((20)),0,(2,1))");
    is::<FlatProduct<Strided<(Int<2>, Int<2>, (Int<4>, Int<1>), (Int<4>,)), (Int<1>, Int<2>, (Int<4>, Int<0>), (Int<16>,))>, (Strided<Int<7>, Int<1>>,)>>("layout/flat_product-0104", "((2),7,2,(4,1),(4)):((1),2,2,(4,0),(16))");
    is::<FlatProduct<Strided<((Int<8>, Int<4>),), ((Int<4>, Int<1>),)>, Strided<(Int<2>, Int<2>, Int<2>, Int<2>), (Int<16>, Int<1>, Int<12>, Int<24>)>>>("layout/flat_product-0115", "(((8,4)),2,2,2,2):(((4,1)),512,32,384,768)");
    is::<FlatProduct<Strided<(Int<1>, Int<4>, ((Int<2>,),)), (Int<1>, Int<1>, ((Int<4>,),))>, (Int<1>, Int<2>)>>("layout/flat_product-0123", "(1,4,1,2,((2))):(1,1,0,4,((4)))");
    is::<FlatProduct<Strided<Int<4>, Int<1>>, Strided<Int<16>, Int<1>>>>("layout/flat_product-0133", "(4,16):(1,4)");
    is::<FlatProduct<Strided<(Int<2>,), (Int<1>,)>, (Int<4>,)>>("layout/flat_product-0147", "((2),(4)):((1),(2))");
    is::<FlatProduct<Strided<(Int<2>, Int<4>, Int<1>), (Int<1>, Int<2>, Int<0>)>, (Strided<(Int<2>, Int<2>), (Int<4>, Int<16>)>,)>>("layout/flat_product-0160", "((2),(2,2),4,1):((1),(8,32),2,0)");
    is::<FlatProduct<Strided<Int<3>, Int<1>>, (Int<3>,)>>("layout/flat_product-0172", "((3),(3)):((1),(3))");
    is::<FlatProduct<Strided<(Int<3>,), (Int<1>,)>, Strided<(Int<2>, Int<4>, Int<2>), (Int<6>, Int<24>, Int<3>)>>>("layout/flat_product-0184", "((3),2,4,2):((1),18,72,9)");
    is::<FlatProduct<Strided<(Int<2>, Int<8>), (Int<1>, Int<2>)>, (Int<2>, Int<4>)>>("layout/flat_product-0195", "(2,8,2,(2,2)):(1,2,2,(1,16))");
    is::<FlatProduct<Strided<((Int<4>, Int<3>), Int<1>, Int<3>), ((Int<60>, Int<3>), Int<0>, Int<10>)>, Strided<(Int<2>, Int<1>, Int<1>, Int<1>), (Int<1>, Int<0>, Int<0>, Int<0>)>>>("layout/flat_product-0204", "((4,3),1,3,2,1,1,1):((60,3),0,10,1,0,0,0)");
    is::<FlatProduct<Strided<(Int<1>, Int<1>, Int<2>), (Int<0>, Int<0>, Int<1>)>, (Strided<(Int<1>, Int<3>), (Int<3>, Int<1>)>,)>>("layout/flat_product-0213", "((1),(1,3),1,2):((0),(3,1),0,1)");
}

#[test]
fn flatten() {
    is::<Flattened<Strided<Int<1>, Int<0>>>>("layout/flatten-0000", "1:0");
    is::<Flattened<Strided<Int<7>, Int<3>>>>("layout/flatten-0016", "7:3");
    is::<Flattened<Strided<(Int<2>, Int<4>), (Int<4>, Int<1>)>>>("layout/flatten-0033", "(2,4):(4,1)");
    is::<Flattened<Strided<((Int<4>, Int<8>), (Int<2>, Int<2>)), ((Int<32>, Int<1>), (Int<16>, Int<8>))>>>("layout/flatten-0046", "(4,8,2,2):(32,1,16,8)");
    is::<Flattened<Strided<(Int<2>, Int<3>, Int<4>, Int<5>), (Int<1>, Int<2>, Int<6>, Int<24>)>>>("layout/flatten-0060", "(2,3,4,5):(1,2,6,24)");
    is::<Flattened<Strided<(Int<4>, Int<4>), (Int<3>, Int<3>)>>>("layout/flatten-0072", "(4,4):(3,3)");
    is::<Flattened<Strided<(Int<4>, Int<2>, Int<8>), (Int<2>, Int<1>, Int<8>)>>>("layout/flatten-0087", "(4,2,8):(2,1,8)");
    is::<Flattened<Strided<(Int<2>, Int<3>), (Int<-3>, Int<-1>)>>>("layout/flatten-0099", "(2,3):(-3,-1)");
    is::<Flattened<Strided<(Int<1>, Int<2>, (Int<4>, (Int<1>,)), (Int<8>,)), (Int<0>, Int<1>, (Int<2>, (Int<0>,)), (Int<8>,))>>>("layout/flatten-0114", "(1,2,4,1,8):(0,1,2,0,8)");
    is::<Flattened<Strided<(Int<16>, Int<1>), (Int<1>, Int<0>)>>>("layout/flatten-0136", "(16,1):(1,0)");
    is::<Flattened<Strided<(Int<3>,), (Int<1>,)>>>("layout/flatten-0153", "(3):(1)");
    is::<Flattened<Strided<((Int<4>, Int<2>), Int<1>), ((Int<1>, Int<0>), Int<0>)>>>("layout/flatten-0170", "(4,2,1):(1,0,0)");
    is::<Flattened<Strided<(Int<2>, (Int<4>, Int<4>), Int<4>), (Int<16>, (Int<32>, Int<1>), Int<4>)>>>("layout/flatten-0181", "(2,4,4,4):(16,32,1,4)");
    is::<Flattened<Strided<(Int<10>, Int<4>, Int<2>), (Int<8>, Int<2>, Int<1>)>>>("layout/flatten-0193", "(10,4,2):(8,2,1)");
    is::<Flattened<Strided<((Int<2>, Int<1>), (Int<2>, Int<2>), Int<4>, (Int<2>,)), ((Int<4>, Int<0>), (Int<6>, Int<4>), Int<1>, (Int<100>,))>>>("layout/flatten-0212", "(2,1,2,2,4,2):(4,0,6,4,1,100)");
    is::<Flattened<Strided<(Int<3>, Int<5>, Int<12>), (Int<1>, Int<36>, Int<3>)>>>("layout/flatten-0223", "(3,5,12):(1,36,3)");
    is::<Flattened<Strided<(Int<3>, Int<6>), (Int<0>, Int<0>)>>>("layout/flatten-0236", "(3,6):(0,0)");
    is::<Flattened<Strided<(((Int<2>, Int<5>),),), (((Int<1>, Int<2>),),)>>>("layout/flatten-0250", "(2,5):(1,2)");
    is::<Flattened<Strided<(Int<1>, ((Int<2>,), Int<2>), ((Int<2>, Int<2>), Int<1>), Int<2>), (Int<8>, ((Int<16>,), Int<8>), ((Int<4>, Int<1>), Int<2>), Int<2>)>>>("layout/flatten-0265", "(1,2,2,2,2,1,2):(8,16,8,4,1,2,2)");
    is::<Flattened<Strided<(Int<2>, Int<2>, Int<4>, Int<4>), (Int<-1>, Int<-2>, Int<4>, Int<-16>)>>>("layout/flatten-0277", "(2,2,4,4):(-1,-2,4,-16)");
}

#[test]
fn get() {
    is::<Mode<Strided<(Int<2>, Int<10>, Int<12>), (Int<120>, Int<1>, Int<10>)>, 1>>("layout/get-0004", "10:1");
    is::<Mode<Strided<((Int<4>, Int<2>), Int<2>, Int<2>), ((Int<4>, Int<5>), Int<24>, Int<3>)>, 0>>("layout/get-0006", "(4,2):(4,5)");
    is::<Mode<Strided<(Int<3>,), (Int<1>,)>, 0>>("layout/get-0009", "3:1");
    is::<Mode<Strided<(Int<2>, Int<16>, Int<8>), (Int<128>, Int<8>, Int<1>)>, 1>>("layout/get-0012", "16:8");
    is::<Mode<Strided<((Int<2>,), Int<2>, (Int<1>, Int<2>), Int<4>), ((Int<16>,), Int<8>, (Int<0>, Int<4>), Int<1>)>, 0>>("layout/get-0017", "(2):(16)");
    is::<Mode<Strided<((Int<8>,),), ((Int<1>,),)>, 0>>("layout/get-0022", "(8):(1)");
    is::<Mode<Strided<(Int<2>, Int<2>), (Int<2>, Int<1>)>, 1>>("layout/get-0026", "2:1");
    is::<Mode<Strided<(((Int<4>,), (Int<2>, Int<2>)), Int<8>), (((Int<32>,), (Int<16>, Int<8>)), Int<1>)>, 0>>("layout/get-0028", "((4),(2,2)):((32),(16,8))");
    is::<Mode<Strided<(((Int<4>, Int<2>), (Int<2>, Int<1>)), Int<1>), (((Int<6>, Int<288>), (Int<48>, Int<0>)), Int<0>)>, 1>>("layout/get-0033", "1:0");
    is::<Mode<Strided<((Int<10>,), (Int<3>,), (Int<5>,), (Int<1>,)), ((Int<1>,), (Int<10>,), (Int<30>,), (Int<150>,))>, 1>>("layout/get-0037", "(3):(10)");
    is::<Mode<Strided<(Int<2>, Int<2>), (Int<0>, Int<10>)>, 1>>("layout/get-0042", "2:10");
    is::<Mode<Strided<((Int<5>, Int<2>), Int<1>), ((Int<2>, Int<1>), Int<2>)>, 1>>("layout/get-0045", "1:2");
    is::<Mode<Strided<(Int<2>, Int<4>, Int<2>), (Int<1>, Int<2>, Int<12>)>, 2>>("layout/get-0047", "2:12");
    is::<Mode<Strided<(Int<3>, Int<10>), (Int<1>, Int<3>)>, 1>>("layout/get-0049", "10:3");
    is::<Mode<Strided<(Int<2>, Int<5>, Int<10>, Int<2>), (Int<0>, Int<0>, Int<0>, Int<1>)>, 3>>("layout/get-0051", "2:1");
    is::<Mode<Strided<Int<1>, Int<2>>, 0>>("layout/get-0053", "1:2");
    is::<Mode<Strided<(Int<4>,), (Int<1>,)>, 0>>("layout/get-0056", "4:1");
    is::<Mode<Strided<Int<6>, Int<0>>, 0>>("layout/get-0058", "6:0");
    is::<Mode<Strided<(Int<4>, Int<4>, Int<2>), (Int<2>, Int<8>, Int<1>)>, 0>>("layout/get-0063", "4:2");
    is::<Mode<Strided<(Int<4>, Int<8>, Int<4>), (Int<64>, Int<6>, Int<32>)>, 0>>("layout/get-0068", "4:64");
}

#[test]
fn gmma_smem_layout() {
    is::<Swizzled<Swizzle<0, 4, 3>, Strided<((Int<8>, Int<8>), (Int<16>, Int<4>)), ((Int<16>, Int<128>), (Int<1>, Int<1024>))>>>("swizzle/gmma_smem_layout-0000", "sum 576511846");
    is::<Swizzled<Swizzle<1, 4, 3>, Strided<((Int<8>, Int<8>), (Int<32>, Int<1>)), ((Int<32>, Int<256>), (Int<1>, Int<0>))>>>("swizzle/gmma_smem_layout-0033", "sum 172632562");
    is::<Swizzled<Swizzle<2, 4, 3>, Strided<((Int<8>, Int<32>), (Int<64>, Int<2>)), ((Int<64>, Int<1024>), (Int<1>, Int<512>))>>>("swizzle/gmma_smem_layout-0062", "sum 885819135");
    is::<Swizzled<Swizzle<0, 4, 3>, Strided<((Int<16>, Int<16>), (Int<8>, Int<8>)), ((Int<1>, Int<1024>), (Int<16>, Int<128>))>>>("swizzle/gmma_smem_layout-0087", "sum 117117224");
    is::<Swizzled<Swizzle<1, 4, 3>, Strided<((Int<32>, Int<2>), (Int<8>, Int<16>)), ((Int<1>, Int<4096>), (Int<32>, Int<256>))>>>("swizzle/gmma_smem_layout-0111", "sum 612653984");
    is::<Swizzled<Swizzle<2, 4, 3>, Strided<((Int<64>, Int<2>), (Int<8>, Int<8>), (Int<1>, Int<4>)), ((Int<1>, Int<512>), (Int<64>, Int<1024>), (Int<0>, Int<8192>))>>>("swizzle/gmma_smem_layout-0147", "sum 939045726");
    is::<Swizzled<Swizzle<0, 3, 3>, Strided<((Int<8>, Int<8>), (Int<8>, Int<16>)), ((Int<8>, Int<64>), (Int<1>, Int<512>))>>>("swizzle/gmma_smem_layout-0174", "sum 98094335");
    is::<Swizzled<Swizzle<1, 3, 3>, Strided<((Int<8>, Int<8>), (Int<16>, Int<8>)), ((Int<16>, Int<1024>), (Int<1>, Int<128>))>>>("swizzle/gmma_smem_layout-0201", "sum 431857175");
    is::<Swizzled<Swizzle<2, 3, 3>, Strided<((Int<8>, Int<16>), (Int<32>, Int<4>)), ((Int<32>, Int<256>), (Int<1>, Int<4096>))>>>("swizzle/gmma_smem_layout-0228", "sum 835791499");
    is::<Swizzled<Swizzle<0, 3, 3>, Strided<((Int<8>, Int<8>), (Int<8>, Int<2>)), ((Int<1>, Int<64>), (Int<8>, Int<512>))>>>("swizzle/gmma_smem_layout-0265", "sum 341054464");
    is::<Swizzled<Swizzle<1, 3, 3>, Strided<((Int<16>, Int<4>), (Int<8>, Int<4>)), ((Int<1>, Int<128>), (Int<16>, Int<512>))>>>("swizzle/gmma_smem_layout-0289", "sum 834835442");
    is::<Swizzled<Swizzle<2, 3, 3>, Strided<((Int<32>, Int<8>), (Int<8>, Int<8>)), ((Int<1>, Int<2048>), (Int<32>, Int<256>))>>>("swizzle/gmma_smem_layout-0322", "sum 950645902");
    is::<Swizzled<Swizzle<3, 3, 3>, Strided<((Int<64>, Int<4>), (Int<8>, Int<8>)), ((Int<1>, Int<512>), (Int<64>, Int<2048>))>>>("swizzle/gmma_smem_layout-0347", "sum 369327110");
    is::<Swizzled<Swizzle<0, 2, 3>, Strided<((Int<8>, Int<32>), (Int<4>, Int<16>)), ((Int<4>, Int<32>), (Int<1>, Int<1024>))>>>("swizzle/gmma_smem_layout-0373", "sum 946984952");
    is::<Swizzled<Swizzle<1, 2, 3>, Strided<((Int<8>, Int<32>), (Int<8>, Int<8>)), ((Int<8>, Int<512>), (Int<1>, Int<64>))>>>("swizzle/gmma_smem_layout-0400", "sum 512866684");
    is::<Swizzled<Swizzle<2, 2, 3>, Strided<((Int<8>, Int<16>), (Int<16>, Int<4>), (Int<1>, Int<4>)), ((Int<16>, Int<128>), (Int<1>, Int<2048>), (Int<0>, Int<8192>))>>>("swizzle/gmma_smem_layout-0434", "sum 391720349");
    is::<Swizzled<Swizzle<3, 2, 3>, Strided<((Int<8>, Int<16>), (Int<32>, Int<2>), (Int<1>, Int<4>)), ((Int<32>, Int<256>), (Int<1>, Int<4096>), (Int<0>, Int<8192>))>>>("swizzle/gmma_smem_layout-0458", "sum 747766411");
    is::<Swizzled<Swizzle<0, 2, 3>, Strided<((Int<4>, Int<32>), (Int<8>, Int<8>), (Int<1>, Int<4>)), ((Int<1>, Int<32>), (Int<4>, Int<1024>), (Int<0>, Int<8192>))>>>("swizzle/gmma_smem_layout-0484", "sum 706313573");
    is::<Swizzled<Swizzle<1, 2, 3>, Strided<((Int<8>, Int<8>), (Int<8>, Int<8>), (Int<1>, Int<2>)), ((Int<1>, Int<64>), (Int<8>, Int<512>), (Int<0>, Int<4096>))>>>("swizzle/gmma_smem_layout-0512", "sum 117028095");
    is::<Swizzled<Swizzle<2, 2, 3>, Strided<((Int<16>, Int<4>), (Int<8>, Int<8>), (Int<1>, Int<2>)), ((Int<1>, Int<1024>), (Int<16>, Int<128>), (Int<0>, Int<4096>))>>>("swizzle/gmma_smem_layout-0539", "sum 829083454");
}

#[test]
fn group_modes() {
    is::<Grouped<Strided<(Int<2>, Int<3>, Int<5>, Int<7>), (Int<1>, Int<2>, Int<6>, Int<30>)>, 2, 4>>("layout/group_modes-0002", "(2,3,(5,7)):(1,2,(6,30))");
    is::<Grouped<Strided<Int<8>, Int<1>>, 0, 1>>("layout/group_modes-0009", "((8)):((1))");
    is::<Grouped<Strided<(Int<5>, (Int<4>, Int<1>), (Int<10>,)), (Int<40>, (Int<10>, Int<0>), (Int<1>,))>, 2, 2>>("layout/group_modes-0015", "(5,(4,1),(10)):(40,(10,0),(1))");
    is::<Grouped<Strided<(Int<8>, Int<1>), (Int<1>, Int<0>)>, 1, 1>>("layout/group_modes-0021", "(8,1):(1,0)");
    is::<Grouped<Strided<Int<12>, Int<1>>, 0, 1>>("layout/group_modes-0031", "((12)):((1))");
    is::<Grouped<Strided<(Int<8>, Int<8>), (Int<32>, Int<32>)>, 1, 2>>("layout/group_modes-0038", "(8,(8)):(32,(32))");
    is::<Grouped<Strided<(Int<2>, (Int<3>, Int<2>, Int<5>)), (Int<1>, (Int<20>, Int<10>, Int<2>))>, 1, 1>>("layout/group_modes-0048", "(2,(3,2,5)):(1,(20,10,2))");
    is::<Grouped<Strided<(((Int<2>, Int<6>),),), (((Int<12>, Int<3>),),)>, 1, 1>>("layout/group_modes-0057", "(((2,6))):(((12,3)))");
    is::<Grouped<Strided<(Int<4>, Int<6>, Int<4>), (Int<6>, Int<1>, Int<24>)>, 1, 3>>("layout/group_modes-0063", "(4,(6,4)):(6,(1,24))");
    is::<Grouped<Strided<((Int<4>, (Int<2>,)), ((Int<2>,), Int<16>)), ((Int<32>, (Int<1>,)), ((Int<128>,), Int<2>))>, 0, 1>>("layout/group_modes-0072", "(((4,(2))),((2),16)):(((32,(1))),((128),2))");
    is::<Grouped<Strided<Int<10>, Int<3>>, 0, 1>>("layout/group_modes-0082", "((10)):((3))");
    is::<Grouped<Strided<(Int<4>, ((Int<2>, Int<2>, Int<5>),)), (Int<1>, ((Int<4>, Int<8>, Int<16>),))>, 0, 0>>("layout/group_modes-0090", "(4,((2,2,5))):(1,((4,8,16)))");
    is::<Grouped<Strided<((Int<8>, Int<8>, Int<2>),), ((Int<8>, Int<100>, Int<4>),)>, 1, 1>>("layout/group_modes-0097", "((8,8,2)):((8,100,4))");
    is::<Grouped<Strided<(Int<3>, Int<5>, Int<4>, Int<3>), (Int<60>, Int<12>, Int<3>, Int<1>)>, 4, 4>>("layout/group_modes-0103", "(3,5,4,3):(60,12,3,1)");
    is::<Grouped<Strided<(Int<2>, Int<2>, (Int<2>, Int<2>), Int<4>), (Int<8>, Int<16>, (Int<4>, Int<0>), Int<1>)>, 4, 4>>("layout/group_modes-0111", "(2,2,(2,2),4):(8,16,(4,0),1)");
    is::<Grouped<Strided<(Int<2>, Int<12>), (Int<1>, Int<2>)>, 1, 2>>("layout/group_modes-0122", "(2,(12)):(1,(2))");
    is::<Grouped<Strided<(Int<8>, Int<1>), (Int<1>, Int<5>)>, 2, 2>>("layout/group_modes-0131", "(8,1):(1,5)");
    is::<Grouped<Strided<(Int<8>, (Int<2>, Int<16>)), (Int<1>, (Int<8>, Int<16>))>, 1, 1>>("layout/group_modes-0138", "(8,(2,16)):(1,(8,16))");
    is::<Grouped<Strided<(Int<16>,), (Int<1>,)>, 1, 1>>("layout/group_modes-0145", "(16):(1)");
}

#[test]
fn left_inverse() {
    is::<LeftInverse<Strided<Int<1>, Int<0>>>>("layout/left_inverse-0000", "1:0");
    is::<LeftInverse<Strided<Int<7>, Int<3>>>>("layout/left_inverse-0016", "(3,7):(0,1)");
    is::<LeftInverse<Strided<(Int<4>, Int<2>), (Int<1>, Int<8>)>>>("layout/left_inverse-0032", "(8,2):(1,4)");
    is::<LeftInverse<Strided<(Int<3>, Int<5>), (Int<1>, Int<4>)>>>("layout/left_inverse-0050", "(4,5):(1,3)");
    is::<LeftInverse<Strided<(Int<4>, (Int<2>, Int<2>), (Int<1>, Int<3>)), (Int<2>, (Int<1>, Int<8>), (Int<0>, Int<16>))>>>("layout/left_inverse-0065", "(2,4,6):(4,1,8)");
    is::<LeftInverse<Strided<(Int<64>, Int<2>), (Int<2>, Int<1>)>>>("layout/left_inverse-0080", "(2,64):(64,1)");
    is::<LeftInverse<Strided<(Int<4>,), (Int<1>,)>>>("layout/left_inverse-0094", "4:1");
    is::<LeftInverse<Strided<(Int<1>, Int<2>, Int<2>, Int<8>), (Int<0>, Int<4>, Int<64>, Int<8>)>>>("layout/left_inverse-0114", "(4,2,8,2):(0,1,4,2)");
    is::<LeftInverse<Strided<(((Int<4>,), Int<3>), Int<2>, Int<1>), (((Int<6>,), Int<2>), Int<1>, Int<0>)>>>("layout/left_inverse-0131", "(2,3,4):(12,4,1)");
    is::<LeftInverse<Strided<(Int<4>, Int<12>), (Int<8>, Int<32>)>>>("layout/left_inverse-0144", "(8,48):(0,1)");
    is::<LeftInverse<Strided<(Int<3>, Int<4>), (Int<4>, Int<1>)>>>("layout/left_inverse-0162", "(4,3):(3,1)");
    is::<LeftInverse<Strided<Int<7>, Int<1>>>>("layout/left_inverse-0183", "7:1");
    is::<LeftInverse<Strided<((Int<3>,), (Int<4>, Int<3>, Int<5>)), ((Int<60>,), (Int<15>, Int<5>, Int<1>))>>>("layout/left_inverse-0197", "(5,3,4,3):(36,12,3,1)");
    is::<LeftInverse<Strided<(Int<8>, Int<1>, Int<4>, Int<8>), (Int<32>, Int<0>, Int<8>, Int<1>)>>>("layout/left_inverse-0216", "(8,4,8):(32,8,1)");
    is::<LeftInverse<Strided<(Int<1>, Int<2>, Int<4>, Int<2>), (Int<0>, Int<4>, Int<1>, Int<8>)>>>("layout/left_inverse-0231", "(4,2,2):(2,1,8)");
    is::<LeftInverse<Strided<((Int<3>, (Int<1>, Int<2>), Int<8>),), ((Int<16>, (Int<0>, Int<8>), Int<1>),)>>>("layout/left_inverse-0251", "(8,2,3):(6,3,1)");
    is::<LeftInverse<Strided<(Int<5>, Int<3>), (Int<10>, Int<2>)>>>("layout/left_inverse-0268", "(2,5,5):(0,5,1)");
    is::<LeftInverse<Strided<(Int<12>, Int<3>, Int<2>, Int<2>), (Int<1>, Int<12>, Int<36>, Int<72>)>>>("layout/left_inverse-0285", "144:1");
    is::<LeftInverse<Strided<(Int<1>, Int<5>, Int<2>, Int<6>), (Int<1>, Int<1>, Int<5>, Int<10>)>>>("layout/left_inverse-0302", "60:1");
    is::<LeftInverse<Strided<(Int<8>, Int<2>, Int<4>), (Int<8>, Int<4>, Int<1>)>>>("layout/left_inverse-0316", "(4,2,8):(16,8,1)");
}

#[test]
fn logical_divide() {
    is::<LogicalDivide<Strided<(Int<9>, (Int<4>, Int<8>)), (Int<59>, (Int<13>, Int<1>))>, (Strided<Int<3>, Int<3>>, Strided<(Int<2>, Int<4>), (Int<1>, Int<8>)>)>>("layout/logical_divide-0001", "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))");
    is::<LogicalDivideCeil<Strided<Int<6>, Int<2>>, Int<12>>>("layout/logical_divide-0015", "(12,1):(2,0)");
    is::<LogicalDivide<Strided<(Int<16>,), (Int<1>,)>, Int<4>>>("layout/logical_divide-0032", "(4,4):(1,4)");
    is::<LogicalDivide<Strided<(Int<4>,), (Int<1>,)>, (Strided<Int<4>, Int<1>>,)>>("layout/logical_divide-0045", "((4,1)):((1,0))");
    is::<LogicalDivide<Strided<(Int<4>, Int<9>, Int<3>), (Int<3>, Int<12>, Int<1>)>, (Strided<(Int<4>,), (Int<1>,)>, Keep)>>("layout/logical_divide-0059", "(((4),1),9,3):(((3),0),12,1)");
    is::<LogicalDivide<Strided<(Int<2>, Int<8>, Int<8>), (Int<24>, Int<3>, Int<96>)>, Int<2>>>("layout/logical_divide-0078", "(2,(8,8)):(24,(3,96))");
    is::<LogicalDivide<Strided<(Int<10>, (Int<3>, Int<12>)), (Int<1>, (Int<10>, Int<30>))>, (Keep, Strided<Int<36>, Int<1>>)>>("layout/logical_divide-0092", "(10,(36,1)):(1,(10,0))");
    is::<LogicalDivide<Strided<(Int<1>,), (Int<1>,)>, Strided<(Int<1>,), (Int<1>,)>>>("layout/logical_divide-0110", "((1),1):((1),0)");
    is::<LogicalDivide<Strided<(((Int<8>, Int<4>), Int<16>),), (((Int<512>, Int<128>), Int<8>),)>, (Int<512>,)>>("layout/logical_divide-0125", "(((8,4,16),1)):(((512,128,8),0))");
    is::<LogicalDivide<Strided<(Int<2>, Int<2>, Int<8>, Int<8>), (Int<1>, Int<2>, Int<4>, Int<32>)>, Strided<Int<16>, Int<16>>>>("layout/logical_divide-0142", "(16,16):(16,1)");
    is::<LogicalDivide<Strided<(Int<4>, Int<9>, Int<4>), (Int<36>, Int<4>, Int<1>)>, Strided<(Int<2>, Int<3>, Int<2>, Int<2>, Int<1>), (Int<1>, Int<12>, Int<36>, Int<72>, Int<3>)>>>("layout/logical_divide-0157", "((2,3,2,2,1),(2,3)):((36,12,1,2,1),(72,4))");
    is::<LogicalDivide<Strided<(Int<1>, Int<8>, Int<2>), (Int<7>, Int<1>, Int<8>)>, (Keep, Strided<Int<1>, Int<4>>, Strided<Int<2>, Int<1>>)>>("layout/logical_divide-0171", "(1,(1,8),(2,1)):(7,(4,1),(8,0))");
    is::<LogicalDivide<Strided<Int<3>, Int<1>>, Strided<(Int<1>,), (Int<1>,)>>>("layout/logical_divide-0183", "((1),3):((1),1)");
    is::<LogicalDivide<Strided<(Int<2>, (Int<2>, Int<4>)), (Int<1>, (Int<8>, Int<2>))>, (Keep, Strided<Int<4>, Int<1>>)>>("layout/logical_divide-0194", "(2,((2,2),2)):(1,((8,2),4))");
    is::<LogicalDivide<Strided<(Int<2>,), (Int<0>,)>, Int<2>>>("layout/logical_divide-0209", "(2,1):(0,0)");
    is::<LogicalDivide<Strided<(Int<10>, Int<2>, Int<6>), (Int<24>, Int<12>, Int<2>)>, Strided<(Int<5>, (Int<2>,)), (Int<1>, (Int<5>,))>>>("layout/logical_divide-0225", "((5,(2)),(2,6)):((24,(120)),(12,2))");
    is::<LogicalDivide<Strided<Int<7>, Int<1>>, (Strided<Int<1>, Int<1>>,)>>("layout/logical_divide-0241", "((1,7)):((1,1))");
    is::<LogicalDivide<Strided<(Int<6>,), (Int<1>,)>, Strided<Int<6>, Int<1>>>>("layout/logical_divide-0261", "(6,1):(1,0)");
    is::<LogicalDivide<Strided<((Int<1>, Int<4>), (Int<4>, Int<8>), Int<4>), ((Int<0>, Int<32>), (Int<1>, Int<4>), Int<128>)>, ((Keep,), Strided<(Int<1>,), (Int<1>,)>, Keep)>>("layout/logical_divide-0276", "((1,4),((1),32),4):((0,32),((1),1),128)");
}

#[test]
fn logical_product() {
    is::<LogicalProduct<Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>, Strided<Int<6>, Int<1>>>>("layout/logical_product-0000", "((2,2),(2,3)):((4,1),(2,8))");
    is::<LogicalProduct<Strided<(Int<2>, Int<3>), (Int<1>, Int<2>)>, (Keep, Int<2>)>>("layout/logical_product-0011", "(2,(3,2)):(1,(2,1))");
    is::<LogicalProduct<Strided<((Int<3>,), Int<3>, (Int<1>,), Int<6>), ((Int<1>,), Int<3>, (Int<9>,), Int<9>)>, Strided<(Int<4>, Int<2>, Int<1>), (Int<2>, Int<1>, Int<1>)>>>("layout/logical_product-0021", "(((3),3,(1),6),(4,2,1)):(((1),3,(9),9),(108,54,54))");
    is::<LogicalProduct<Strided<(Int<2>, Int<4>, Int<8>), (Int<1>, Int<2>, Int<8>)>, (Strided<(Int<2>, Int<2>), (Int<2>, Int<1>)>,)>>("layout/logical_product-0032", "((2,(2,2)),4,8):((1,(4,2)),2,8)");
    is::<LogicalProduct<Strided<(Int<4>, ((Int<2>, Int<2>), Int<2>)), (Int<1>, ((Int<4>, Int<8>), Int<16>))>, Strided<(Int<2>, (Int<4>,)), (Int<4>, (Int<1>,))>>>("layout/logical_product-0040", "((4,((2,2),2)),(2,(4))):((1,((4,8),16)),(128,(32)))");
    is::<LogicalProduct<Strided<(((Int<8>,),), (Int<1>, Int<1>), Int<1>), (((Int<1>,),), (Int<0>, Int<0>), Int<0>)>, Int<5>>>("layout/logical_product-0053", "((((8)),(1,1),1),5):((((1)),(0,0),0),8)");
    is::<LogicalProduct<Strided<(Int<1>, (Int<3>,), Int<9>, Int<1>), (Int<0>, (Int<9>,), Int<1>, Int<0>)>, Strided<(Int<4>, Int<2>), (Int<2>, Int<4>)>>>("layout/logical_product-0071", "((1,(3),9,1),(4,2)):((0,(9),1,0),(54,108))");
    is::<LogicalProduct<Strided<(Int<2>, (Int<4>,), Int<3>, Int<2>), (Int<24>, (Int<6>,), Int<2>, Int<1>)>, (Keep, Int<4>)>>("layout/logical_product-0088", "(2,((4),4),3,2):(24,((6),1),2,1)");
    is::<LogicalProduct<Strided<(Int<2>, Int<4>, Int<2>, Int<2>), (Int<1>, Int<2>, Int<8>, Int<16>)>, (Strided<Int<8>, Int<5>>, Keep, Int<1>)>>("layout/logical_product-0099", "((2,8),4,(2,1),2):((1,10),2,(8,0),16)");
    is::<LogicalProduct<Strided<(Int<3>, Int<4>, Int<3>), (Int<12>, Int<3>, Int<1>)>, Strided<(Int<2>, Int<2>, Int<2>), (Int<1>, Int<2>, Int<4>)>>>("layout/logical_product-0123", "((3,4,3),(2,2,2)):((12,3,1),(36,72,144))");
    is::<LogicalProduct<Strided<((Int<2>,), Int<10>, Int<2>), ((Int<20>,), Int<1>, Int<10>)>, Strided<((Int<2>,), (Int<2>, Int<4>)), ((Int<6>,), (Int<1>, Int<12>))>>>("layout/logical_product-0136", "(((2),10,2),((2),(2,4))):(((20),1,10),((240),(40,480)))");
    is::<LogicalProduct<Strided<((Int<2>, Int<2>),), ((Int<1>, Int<2>),)>, Strided<(Int<1>, Int<10>), (Int<0>, Int<1>)>>>("layout/logical_product-0148", "(((2,2)),(1,10)):(((1,2)),(0,4))");
    is::<LogicalProduct<Strided<(Int<4>, Int<8>, Int<1>), (Int<1>, Int<4>, Int<64>)>, (Keep,)>>("layout/logical_product-0158", "(4,8,1):(1,4,64)");
    is::<LogicalProduct<Strided<(Int<4>, Int<4>, Int<2>, Int<2>), (Int<16>, Int<64>, Int<8>, Int<1>)>, Int<1>>>("layout/logical_product-0168", "((4,4,2,2),1):((16,64,8,1),0)");
    is::<LogicalProduct<Strided<(Int<4>, Int<8>), (Int<1>, Int<4>)>, (Keep,)>>("layout/logical_product-0183", "(4,8):(1,4)");
    is::<LogicalProduct<Strided<(Int<4>, Int<4>), (Int<4>, Int<1>)>, Strided<(Int<4>,), (Int<2>,)>>>("layout/logical_product-0195", "((4,4),(4)):((4,1),(32))");
    is::<LogicalProduct<Strided<(Int<8>, Int<8>), (Int<1>, Int<8>)>, Strided<((Int<2>, Int<2>), (Int<2>,)), ((Int<2>, Int<4>), (Int<1>,))>>>("layout/logical_product-0206", "((8,8),((2,2),(2))):((1,8),((128,256),(64)))");
    is::<LogicalProduct<Strided<(Int<4>, Int<2>, Int<2>, Int<4>), (Int<1>, Int<4>, Int<8>, Int<16>)>, Int<8>>>("layout/logical_product-0217", "((4,2,2,4),8):((1,4,8,16),64)");
    is::<LogicalProduct<Strided<(Int<2>, Int<2>, Int<2>, Int<4>), (Int<16>, Int<8>, Int<4>, Int<1>)>, (Strided<(Int<8>, Int<1>), (Int<1>, Int<0>)>,)>>("layout/logical_product-0230", "((2,(8,1)),2,2,4):((16,(1,0)),8,4,1)");
}

#[test]
fn make_layout() {
    is::<CompactRight<Int<1>>>("layout/make_layout-0001", "1:0");
    is::<CompactRight<(Int<1>,)>>("layout/make_layout-0007", "(1):(0)");
    is::<CompactRight<(Int<1>, Int<1>)>>("layout/make_layout-0013", "(1,1):(0,0)");
    is::<CompactRight<(Int<4>, Int<1>)>>("layout/make_layout-0022", "(4,1):(1,0)");
    is::<Compact<(Int<2>, (Int<3>, Int<4>))>>("layout/make_layout-0027", "(2,(3,4)):(1,(2,6))");
    is::<CompactRight<((Int<2>, Int<1>), (Int<1>, Int<5>))>>("layout/make_layout-0034", "((2,1),(1,5)):((5,0),(0,1))");
    is::<Compact<(Int<2>, Int<3>, Int<4>, Int<5>)>>("layout/make_layout-0041", "(2,3,4,5):(1,2,6,24)");
    is::<Compact<(Int<3>, Int<10>)>>("layout/make_layout-0052", "(3,10):(1,3)");
    is::<Compact<(Int<5>, Int<1>, Int<8>, Int<1>)>>("layout/make_layout-0059", "(5,1,8,1):(1,0,5,0)");
    is::<Compact<(Int<4>, Int<6>, (Int<1>, Int<3>))>>("layout/make_layout-0066", "(4,6,(1,3)):(1,4,(0,24))");
    is::<Compact<(Int<3>, Int<1>)>>("layout/make_layout-0076", "(3,1):(1,0)");
    is::<Compact<(((Int<3>, Int<4>), Int<6>),)>>("layout/make_layout-0087", "(((3,4),6)):(((1,3),12))");
    is::<Compact<(Int<5>, Int<3>, Int<3>, Int<5>)>>("layout/make_layout-0095", "(5,3,3,5):(1,5,15,45)");
    is::<CompactRight<((Int<2>,), (Int<3>,), Int<1>, Int<6>)>>("layout/make_layout-0101", "((2),(3),1,6):((18),(6),0,1)");
    is::<CompactRight<(Int<2>, Int<6>)>>("layout/make_layout-0108", "(2,6):(6,1)");
    is::<Compact<(Int<4>, Int<2>, Int<2>, Int<1>)>>("layout/make_layout-0117", "(4,2,2,1):(1,4,8,0)");
    is::<Compact<(Int<6>, Int<8>)>>("layout/make_layout-0122", "(6,8):(1,6)");
    is::<Compact<((Int<8>,), Int<1>, (Int<8>,))>>("layout/make_layout-0132", "((8),1,(8)):((1),0,(8))");
}

#[test]
fn make_ordered_layout() {
    is::<Ordered<(Int<2>, Int<2>, Int<2>, Int<2>), (Int<0>, Int<2>, Int<3>, Int<1>)>>("layout/make_ordered_layout-0000", "(2,2,2,2):(1,4,8,2)");
    is::<Compact<(Int<2>, Int<3>, Int<4>)>>("layout/make_ordered_layout-0010", "(2,3,4):(1,2,6)");
    is::<Ordered<(Int<2>, (Int<2>,), Int<8>), (Int<1>, Int<1>, Int<3>)>>("layout/make_ordered_layout-0020", "(2,(2),8):(1,(1),4)");
    is::<Ordered<(Int<6>,), (Int<3>,)>>("layout/make_ordered_layout-0029", "(6):(1)");
    is::<Ordered<(Int<4>, Int<2>, Int<4>, Int<8>), (Int<1>, Int<0>, Int<3>, Int<2>)>>("layout/make_ordered_layout-0037", "(4,2,4,8):(2,1,64,8)");
    is::<Ordered<(Int<6>, Int<12>), (Int<1>, Int<0>)>>("layout/make_ordered_layout-0050", "(6,12):(12,1)");
    is::<Ordered<((Int<4>, Int<2>),), ((Int<1>, Int<0>),)>>("layout/make_ordered_layout-0060", "((4,2)):((2,1))");
    is::<Ordered<(Int<8>, ((Int<1>, Int<4>), Int<2>), Int<4>), (Int<4>, Int<5>, Int<3>)>>("layout/make_ordered_layout-0069", "(8,((1,4),2),4):(4,((0,32),128),1)");
    is::<Ordered<(Int<16>,), (Int<0>,)>>("layout/make_ordered_layout-0077", "(16):(1)");
    is::<Ordered<(Int<10>, Int<4>), (Int<1>, Int<0>)>>("layout/make_ordered_layout-0087", "(10,4):(4,1)");
    is::<Ordered<(Int<4>, Int<4>, Int<2>), (Int<0>, Int<3>, Int<4>)>>("layout/make_ordered_layout-0097", "(4,4,2):(1,4,16)");
    is::<Ordered<((Int<1>,), Int<3>, Int<2>), ((Int<0>,), Int<1>, Int<2>)>>("layout/make_ordered_layout-0107", "((1),3,2):((0),1,3)");
    is::<Ordered<(Int<4>, Int<10>), (Int<5>, Int<4>)>>("layout/make_ordered_layout-0119", "(4,10):(10,1)");
    is::<Ordered<((Int<2>,), Int<16>), ((Int<0>,), Int<2>)>>("layout/make_ordered_layout-0126", "((2),16):((1),2)");
    is::<Ordered<(Int<4>, Int<2>, (Int<1>,), (Int<2>, Int<4>, Int<4>)), (Int<1>, Int<2>, (Int<3>,), Int<0>)>>("layout/make_ordered_layout-0135", "(4,2,(1),(2,4,4)):(32,128,(0),(1,2,8))");
    is::<Ordered<(Int<2>, Int<2>), (Int<5>, Int<0>)>>("layout/make_ordered_layout-0144", "(2,2):(2,1)");
    is::<Ordered<(Int<8>,), (Int<4>,)>>("layout/make_ordered_layout-0161", "(8):(1)");
    is::<Ordered<(Int<16>, Int<1>, Int<2>), (Int<4>, Int<0>, Int<5>)>>("layout/make_ordered_layout-0172", "(16,1,2):(1,0,16)");
    is::<Ordered<((Int<8>,), (Int<1>,), (Int<8>,), (Int<2>,)), (Int<4>, (Int<5>,), Int<5>, (Int<0>,))>>("layout/make_ordered_layout-0188", "((8),(1),(8),(2)):((2),(0),(16),(1))");
}

#[test]
fn raked_product() {
    is::<RakedProduct<Strided<(Int<2>, Int<5>), (Int<5>, Int<1>)>, Strided<(Int<3>, Int<4>), (Int<1>, Int<3>)>>>("layout/raked_product-0000", "((3,2),(4,5)):((10,5),(30,1))");
    is::<RakedProduct<Strided<(Int<2>, Int<2>), (Int<1>, Int<2>)>, Strided<(Int<2>, Int<2>, Int<2>), (Int<1>, Int<2>, Int<4>)>>>("layout/raked_product-0009", "((2,2),(2,2),(2,1)):((4,1),(8,2),(16,0))");
    is::<RakedProduct<Strided<(Int<2>, Int<1>, Int<2>), (Int<1>, Int<2>, Int<2>)>, Strided<(Int<12>,), (Int<1>,)>>>("layout/raked_product-0020", "((12,2),(1,1),(1,2)):((4,1),(0,2),(0,2))");
    is::<RakedProduct<Strided<(Int<8>, Int<3>, Int<1>, Int<1>), (Int<3>, Int<1>, Int<0>, Int<0>)>, Strided<(((Int<1>,),), Int<8>, Int<3>), (((Int<1>,),), Int<1>, Int<8>)>>>("layout/raked_product-0032", "((((1)),8),(8,3),(3,1),(1,1)):((((24)),3),(24,1),(192,0),(0,0))");
    is::<RakedProduct<Strided<((Int<2>, Int<2>),), ((Int<2>, Int<1>),)>, Strided<((Int<2>,), (Int<2>,), (Int<2>,)), ((Int<4>,), (Int<2>,), (Int<1>,))>>>("layout/raked_product-0044", "(((2),(2,2)),((2),1),((2),1)):(((16),(2,1)),((8),0),((4),0))");
    is::<RakedProduct<Strided<(Int<8>,), (Int<1>,)>, Strided<(Int<1>, (Int<1>, Int<4>)), (Int<4>, (Int<4>, Int<1>))>>>("layout/raked_product-0054", "((1,8),((1,4),1)):((32,1),((32,8),0))");
    is::<RakedProduct<Strided<(Int<1>, Int<2>, (Int<2>, Int<1>), Int<2>), (Int<2>, Int<65>, (Int<32>, Int<7>), Int<16>)>, Strided<(Int<8>, Int<2>, Int<1>, Int<1>), (Int<2>, Int<16>, Int<0>, Int<0>)>>>("layout/raked_product-0065", "((8,1),(2,2),(1,(2,1)),(1,2)):((2,2),(130,65),(0,(32,7)),(0,16))");
    is::<RakedProduct<Strided<(Int<16>,), (Int<1>,)>, Strided<(Int<2>, Int<2>, Int<1>, Int<4>), (Int<4>, Int<8>, Int<0>, Int<1>)>>>("layout/raked_product-0080", "((2,16),(2,1),(1,1),(4,1)):((64,1),(128,0),(0,0),(16,0))");
    is::<RakedProduct<Strided<(Int<4>, Int<4>, Int<4>), (Int<32>, Int<1>, Int<8>)>, Strided<(Int<2>,), (Int<1>,)>>>("layout/raked_product-0094", "((2,4),(1,4),(1,4)):((4,32),(0,1),(0,8))");
    is::<RakedProduct<Strided<(Int<8>, Int<2>, (Int<2>,)), (Int<4>, Int<2>, (Int<1>,))>, Strided<(Int<2>, Int<2>, Int<2>, Int<2>), (Int<2>, Int<8>, Int<16>, Int<32>)>>>("layout/raked_product-0103", "((2,8),(2,2),(2,(2)),(2,1)):((64,4),(256,2),(512,(1)),(1024,0))");
    is::<RakedProduct<Strided<Int<8>, Int<1>>, Strided<(Int<8>, Int<1>, Int<2>), (Int<1>, Int<0>, Int<8>)>>>("layout/raked_product-0115", "((8,8),(1,1),(2,1)):((8,1),(0,0),(64,0))");
    is::<RakedProduct<Strided<(Int<1>, Int<6>, Int<3>), (Int<0>, Int<1>, Int<6>)>, Strided<(Int<9>,), (Int<1>,)>>>("layout/raked_product-0125", "((9,1),(1,6),(1,3)):((18,0),(0,1),(0,6))");
    is::<RakedProduct<Strided<(Int<3>, Int<1>, Int<3>), (Int<3>, Int<7>, Int<1>)>, Strided<(Int<2>, Int<2>, Int<2>, Int<2>), (Int<0>, Int<2>, Int<1>, Int<4>)>>>("layout/raked_product-0137", "((2,3),(2,1),(2,3),(2,1)):((0,3),(18,7),(9,1),(36,0))");
    is::<RakedProduct<Strided<(Int<4>, Int<16>), (Int<16>, Int<1>)>, Strided<(Int<2>, (Int<2>, Int<2>), Int<2>), (Int<1>, (Int<2>, Int<4>), Int<8>)>>>("layout/raked_product-0150", "((2,4),((2,2),16),(2,1)):((64,16),((128,256),1),(512,0))");
    is::<RakedProduct<Strided<(Int<16>,), (Int<1>,)>, Strided<(Int<2>, Int<4>, (Int<2>,)), (Int<1>, Int<2>, (Int<8>,))>>>("layout/raked_product-0163", "((2,16),(4,1),((2),1)):((16,1),(32,0),((128),0))");
    is::<RakedProduct<Strided<((Int<2>, Int<8>),), ((Int<1>, Int<2>),)>, Strided<((Int<2>,), Int<1>, Int<5>, (Int<1>, Int<2>)), ((Int<10>,), Int<10>, Int<2>, (Int<2>, Int<1>))>>>("layout/raked_product-0175", "(((2),(2,8)),(1,1),(5,1),((1,2),1)):(((160),(1,2)),(160,0),(32,0),((32,16),0))");
    is::<RakedProduct<Strided<((Int<6>, Int<4>), Int<1>), ((Int<1>, Int<6>), Int<1>)>, Strided<Int<8>, Int<1>>>>("layout/raked_product-0186", "((8,(6,4)),(1,1)):((24,(1,6)),(0,1))");
    is::<RakedProduct<Strided<((Int<2>,), (Int<4>, Int<2>), Int<1>, Int<1>), ((Int<8>,), (Int<2>, Int<1>), Int<1>, Int<1>)>, Strided<(Int<4>, Int<1>), (Int<1>, Int<1>)>>>("layout/raked_product-0198", "((4,(2)),(1,(4,2)),(1,1),(1,1)):((16,(8)),(16,(2,1)),(0,1),(0,1))");
    is::<RakedProduct<Strided<(Int<2>, (Int<4>, Int<2>), Int<2>, Int<1>), (Int<16>, (Int<4>, Int<2>), Int<1>, Int<0>)>, Strided<(Int<4>, (Int<2>,)), (Int<6>, (Int<3>,))>>>("layout/raked_product-0213", "((4,2),((2),(4,2)),(1,2),(1,1)):((192,16),((96),(4,2)),(0,1),(0,0))");
}

#[test]
fn right_inverse() {
    is::<RightInverse<Strided<Int<1>, Int<1>>>>("layout/right_inverse-0001", "1:0");
    is::<RightInverse<Strided<(Int<4>, Int<2>), (Int<2>, Int<1>)>>>("layout/right_inverse-0027", "(2,4):(4,1)");
    is::<RightInverse<Strided<((Int<4>, Int<8>), (Int<2>, Int<2>)), ((Int<32>, Int<1>), (Int<16>, Int<8>))>>>("layout/right_inverse-0046", "(8,2,2,4):(4,64,32,1)");
    is::<RightInverse<Strided<(Int<2>, Int<4>, Int<2>, Int<4>), (Int<1>, Int<16>, Int<2>, Int<4>)>>>("layout/right_inverse-0063", "(2,8,4):(1,8,2)");
    is::<RightInverse<Strided<(Int<8>, Int<16>), (Int<1>, Int<8>)>>>("layout/right_inverse-0082", "128:1");
    is::<RightInverse<Strided<(Int<10>, Int<2>), (Int<16>, Int<4>)>>>("layout/right_inverse-0094", "1:0");
    is::<RightInverse<Strided<(Int<8>, Int<8>, Int<4>), (Int<10>, Int<5>, Int<1>)>>>("layout/right_inverse-0112", "4:64");
    is::<RightInverse<Strided<(Int<3>, (Int<1>,), (Int<6>,)), (Int<6>, (Int<18>,), (Int<1>,))>>>("layout/right_inverse-0127", "(6,3):(3,1)");
    is::<RightInverse<Strided<(Int<4>, Int<6>, Int<1>), (Int<1>, Int<4>, Int<0>)>>>("layout/right_inverse-0143", "24:1");
    is::<RightInverse<Strided<(Int<8>, Int<4>, Int<4>), (Int<1>, Int<8>, Int<32>)>>>("layout/right_inverse-0157", "128:1");
    is::<RightInverse<Strided<(Int<3>, Int<4>, Int<8>, Int<2>), (Int<1>, Int<3>, Int<12>, Int<96>)>>>("layout/right_inverse-0171", "192:1");
    is::<RightInverse<Strided<(Int<3>, Int<4>, Int<6>, Int<2>), (Int<64>, Int<8>, Int<3>, Int<0>)>>>("layout/right_inverse-0187", "1:0");
    is::<RightInverse<Strided<(Int<2>, Int<1>, Int<1>, (Int<8>, Int<10>)), (Int<2>, Int<0>, Int<0>, (Int<4>, Int<32>))>>>("layout/right_inverse-0202", "1:0");
    is::<RightInverse<Strided<((Int<4>, Int<2>, Int<16>),), ((Int<32>, Int<16>, Int<1>),)>>>("layout/right_inverse-0216", "(16,2,4):(8,4,1)");
    is::<RightInverse<Strided<(Int<10>, Int<3>, Int<6>), (Int<18>, Int<6>, Int<1>)>>>("layout/right_inverse-0231", "(6,3,10):(30,10,1)");
    is::<RightInverse<Strided<((Int<2>,), Int<2>, Int<2>, (Int<2>, Int<4>)), ((Int<8>,), Int<1>, Int<2>, (Int<4>, Int<16>))>>>("layout/right_inverse-0253", "(8,2,4):(2,1,16)");
    is::<RightInverse<Strided<(Int<9>, Int<2>), (Int<1>, Int<9>)>>>("layout/right_inverse-0274", "18:1");
    is::<RightInverse<Strided<(((Int<2>, Int<16>), (Int<8>, Int<1>)),), (((Int<128>, Int<8>), (Int<1>, Int<0>)),)>>>("layout/right_inverse-0301", "(8,16,2):(32,2,1)");
    is::<RightInverse<Strided<(Int<4>, ((Int<8>, Int<2>),), (Int<4>,)), (Int<64>, ((Int<8>, Int<4>),), (Int<1>,))>>>("layout/right_inverse-0323", "(4,2,8,4):(64,32,4,1)");
    is::<RightInverse<Strided<(Int<10>, Int<1>, Int<5>), (Int<1>, Int<1>, Int<10>)>>>("layout/right_inverse-0342", "50:1");
}

#[test]
fn select() {
    is::<Selected<Strided<(Int<2>, Int<3>, Int<5>), (Int<1>, Int<2>, Int<6>)>, (Int<1>,)>>("layout/select-0001", "(3):(2)");
    is::<Selected<Strided<((Int<2>, Int<3>), Int<5>), ((Int<1>, Int<2>), Int<6>)>, (Int<0>, Int<1>)>>("layout/select-0008", "((2,3),5):((1,2),6)");
    is::<Selected<Strided<Int<32>, Int<1>>, (Int<0>, Int<0>, Int<0>)>>("layout/select-0020", "(32,32,32):(1,1,1)");
    is::<Selected<Strided<(Int<1>, Int<3>, Int<1>), (Int<0>, Int<1>, Int<0>)>, (Int<2>,)>>("layout/select-0028", "(1):(0)");
    is::<Selected<Strided<(Int<2>, (Int<1>, Int<2>), Int<4>), (Int<2>, (Int<0>, Int<1>), Int<4>)>, (Int<1>, Int<2>, Int<1>, Int<0>)>>("layout/select-0038", "((1,2),4,(1,2),2):((0,1),4,(0,1),2)");
    is::<Selected<Strided<(Int<4>, Int<2>), (Int<2>, Int<1>)>, (Int<1>, Int<0>)>>("layout/select-0046", "(2,4):(1,2)");
    is::<Selected<Strided<(Int<1>,), (Int<0>,)>, (Int<0>,)>>("layout/select-0054", "(1):(0)");
    is::<Selected<Strided<(Int<3>,), (Int<0>,)>, (Int<0>, Int<0>, Int<0>, Int<0>)>>("layout/select-0063", "(3,3,3,3):(0,0,0,0)");
    is::<Selected<Strided<(Int<3>, Int<3>, Int<1>), (Int<6>, Int<16>, Int<7>)>, (Int<0>,)>>("layout/select-0069", "(3):(6)");
    is::<Selected<Strided<(Int<4>, Int<4>, Int<2>), (Int<8>, Int<2>, Int<1>)>, (Int<0>, Int<1>)>>("layout/select-0081", "(4,4):(8,2)");
    is::<Selected<Strided<(Int<3>, (Int<5>,), Int<4>), (Int<5>, (Int<1>,), Int<15>)>, (Int<0>, Int<1>, Int<2>, Int<0>)>>("layout/select-0087", "(3,(5),4,3):(5,(1),15,5)");
    is::<Selected<Strided<(Int<8>, (Int<2>, Int<16>)), (Int<2>, (Int<1>, Int<32>))>, (Int<1>,)>>("layout/select-0098", "((2,16)):((1,32))");
    is::<Selected<Strided<Int<1>, Int<0>>, (Int<0>, Int<0>)>>("layout/select-0105", "(1,1):(0,0)");
    is::<Selected<Strided<(Int<4>,), (Int<1>,)>, (Int<0>, Int<0>)>>("layout/select-0117", "(4,4):(1,1)");
    is::<Selected<Strided<(Int<8>, Int<8>, Int<2>), (Int<16>, Int<2>, Int<1>)>, (Int<1>, Int<1>)>>("layout/select-0126", "(8,8):(2,2)");
    is::<Selected<Strided<(Int<4>, Int<2>, Int<8>, Int<2>), (Int<1>, Int<384>, Int<48>, Int<12>)>, (Int<2>, Int<0>)>>("layout/select-0136", "(8,4):(48,1)");
    is::<Selected<Strided<Int<2>, Int<0>>, (Int<0>, Int<0>, Int<0>, Int<0>)>>("layout/select-0144", "(2,2,2,2):(0,0,0,0)");
    is::<Selected<Strided<((Int<8>, Int<8>), Int<4>), ((Int<32>, Int<4>), Int<1>)>, (Int<0>, Int<0>, Int<1>, Int<0>)>>("layout/select-0152", "((8,8),(8,8),4,(8,8)):((32,4),(32,4),1,(32,4))");
}

#[test]
fn swizzle_layout() {
    is::<Swizzled<Swizzle<0, 4, 3>, Strided<(Int<16>, Int<8>), (Int<8>, Int<1>)>>>("swizzle/swizzle_layout-0000", "[0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 1, 9, 17, 25, 33, 41, 49, 57, 65, 73, 81, 89, 97, 105, 113, 121, 2, 10, 18, 26, 34, 42, 50, 58, 66, 74, 82, 90, 98, 106, 114, 122, 3, 11, 19, 27, 35, 43, 51, 59, 67, 75, 83, 91, 99, 107, 115, 123, 4, 12, 20, 28, 36, 44, 52, 60, 68, 76, 84, 92, 100, 108, 116, 124, 5, 13, 21, 29, 37, 45, 53, 61, 69, 77, 85, 93, 101, 109, 117, 125, 6, 14, 22, 30, 38, 46, 54, 62, 70, 78, 86, 94, 102, 110, 118, 126, 7, 15, 23, 31, 39, 47, 55, 63, 71, 79, 87, 95, 103, 111, 119, 127]");
    is::<Swizzled<Swizzle<3, 4, 3>, Strided<(Int<8>, (Int<16>, Int<2>)), (Int<16>, (Int<1>, Int<128>))>>>("swizzle/swizzle_layout-0015", "[0, 16, 32, 48, 64, 80, 96, 112, 1, 17, 33, 49, 65, 81, 97, 113, 2, 18, 34, 50, 66, 82, 98, 114, 3, 19, 35, 51, 67, 83, 99, 115, 4, 20, 36, 52, 68, 84, 100, 116, 5, 21, 37, 53, 69, 85, 101, 117, 6, 22, 38, 54, 70, 86, 102, 118, 7, 23, 39, 55, 71, 87, 103, 119, 8, 24, 40, 56, 72, 88, 104, 120, 9, 25, 41, 57, 73, 89, 105, 121, 10, 26, 42, 58, 74, 90, 106, 122, 11, 27, 43, 59, 75, 91, 107, 123, 12, 28, 44, 60, 76, 92, 108, 124, 13, 29, 45, 61, 77, 93, 109, 125, 14, 30, 46, 62, 78, 94, 110, 126, 15, 31, 47, 63, 79, 95, 111, 127, 144, 128, 176, 160, 208, 192, 240, 224, 145, 129, 177, 161, 209, 193, 241, 225, 146, 130, 178, 162, 210, 194, 242, 226, 147, 131, 179, 163, 211, 195, 243, 227, 148, 132, 180, 164, 212, 196, 244, 228, 149, 133, 181, 165, 213, 197, 245, 229, 150, 134, 182, 166, 214, 198, 246, 230, 151, 135, 183, 167, 215, 199, 247, 231, 152, 136, 184, 168, 216, 200, 248, 232, 153, 137, 185, 169, 217, 201, 249, 233, 154, 138, 186, 170, 218, 202, 250, 234, 155, 139, 187, 171, 219, 203, 251, 235, 156, 140, 188, 172, 220, 204, 252, 236, 157, 141, 189, 173, 221, 205, 253, 237, 158, 142, 190, 174, 222, 206, 254, 238, 159, 143, 191, 175, 223, 207, 255, 239]");
    is::<Swizzled<Swizzle<1, 3, 3>, Strided<Int<64>, Int<1>>>>("swizzle/swizzle_layout-0027", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63]");
    is::<Swizzled<Swizzle<3, 2, 3>, Strided<(Int<8>, (Int<16>, Int<2>)), (Int<16>, (Int<1>, Int<128>))>>>("swizzle/swizzle_layout-0035", "[0, 16, 36, 52, 72, 88, 108, 124, 1, 17, 37, 53, 73, 89, 109, 125, 2, 18, 38, 54, 74, 90, 110, 126, 3, 19, 39, 55, 75, 91, 111, 127, 4, 20, 32, 48, 76, 92, 104, 120, 5, 21, 33, 49, 77, 93, 105, 121, 6, 22, 34, 50, 78, 94, 106, 122, 7, 23, 35, 51, 79, 95, 107, 123, 8, 24, 44, 60, 64, 80, 100, 116, 9, 25, 45, 61, 65, 81, 101, 117, 10, 26, 46, 62, 66, 82, 102, 118, 11, 27, 47, 63, 67, 83, 103, 119, 12, 28, 40, 56, 68, 84, 96, 112, 13, 29, 41, 57, 69, 85, 97, 113, 14, 30, 42, 58, 70, 86, 98, 114, 15, 31, 43, 59, 71, 87, 99, 115, 144, 128, 180, 164, 216, 200, 252, 236, 145, 129, 181, 165, 217, 201, 253, 237, 146, 130, 182, 166, 218, 202, 254, 238, 147, 131, 183, 167, 219, 203, 255, 239, 148, 132, 176, 160, 220, 204, 248, 232, 149, 133, 177, 161, 221, 205, 249, 233, 150, 134, 178, 162, 222, 206, 250, 234, 151, 135, 179, 163, 223, 207, 251, 235, 152, 136, 188, 172, 208, 192, 244, 228, 153, 137, 189, 173, 209, 193, 245, 229, 154, 138, 190, 174, 210, 194, 246, 230, 155, 139, 191, 175, 211, 195, 247, 231, 156, 140, 184, 168, 212, 196, 240, 224, 157, 141, 185, 169, 213, 197, 241, 225, 158, 142, 186, 170, 214, 198, 242, 226, 159, 143, 187, 171, 215, 199, 243, 227]");
    is::<Swizzled<Swizzle<2, 3, 4>, Strided<(Int<4>, (Int<2>, Int<8>)), (Int<16>, (Int<8>, Int<64>))>>>("swizzle/swizzle_layout-0049", "[0, 16, 32, 48, 8, 24, 40, 56, 64, 80, 96, 112, 72, 88, 104, 120, 136, 152, 168, 184, 128, 144, 160, 176, 200, 216, 232, 248, 192, 208, 224, 240, 272, 256, 304, 288, 280, 264, 312, 296, 336, 320, 368, 352, 344, 328, 376, 360, 408, 392, 440, 424, 400, 384, 432, 416, 472, 456, 504, 488, 464, 448, 496, 480]");
    is::<Swizzled<Swizzle<3, 0, 3>, Strided<Int<64>, Int<1>>>>("swizzle/swizzle_layout-0071", "[0, 1, 2, 3, 4, 5, 6, 7, 9, 8, 11, 10, 13, 12, 15, 14, 18, 19, 16, 17, 22, 23, 20, 21, 27, 26, 25, 24, 31, 30, 29, 28, 36, 37, 38, 39, 32, 33, 34, 35, 45, 44, 47, 46, 41, 40, 43, 42, 54, 55, 52, 53, 50, 51, 48, 49, 63, 62, 61, 60, 59, 58, 57, 56]");
    is::<Swizzled<Swizzle<4, 0, 5>, Strided<(Int<4>, (Int<2>, Int<8>)), (Int<16>, (Int<8>, Int<64>))>>>("swizzle/swizzle_layout-0080", "[0, 16, 33, 49, 8, 24, 41, 57, 66, 82, 99, 115, 74, 90, 107, 123, 132, 148, 165, 181, 140, 156, 173, 189, 198, 214, 231, 247, 206, 222, 239, 255, 264, 280, 297, 313, 256, 272, 289, 305, 330, 346, 363, 379, 322, 338, 355, 371, 396, 412, 429, 445, 388, 404, 421, 437, 462, 478, 495, 511, 454, 470, 487, 503]");
    is::<Swizzled<Swizzle<2, 0, 3>, Strided<(Int<8>, Int<16>), (Int<16>, Int<1>)>>>("swizzle/swizzle_layout-0084", "[0, 18, 32, 50, 64, 82, 96, 114, 1, 19, 33, 51, 65, 83, 97, 115, 2, 16, 34, 48, 66, 80, 98, 112, 3, 17, 35, 49, 67, 81, 99, 113, 4, 22, 36, 54, 68, 86, 100, 118, 5, 23, 37, 55, 69, 87, 101, 119, 6, 20, 38, 52, 70, 84, 102, 116, 7, 21, 39, 53, 71, 85, 103, 117, 9, 27, 41, 59, 73, 91, 105, 123, 8, 26, 40, 58, 72, 90, 104, 122, 11, 25, 43, 57, 75, 89, 107, 121, 10, 24, 42, 56, 74, 88, 106, 120, 13, 31, 45, 63, 77, 95, 109, 127, 12, 30, 44, 62, 76, 94, 108, 126, 15, 29, 47, 61, 79, 93, 111, 125, 14, 28, 46, 60, 78, 92, 110, 124]");
    is::<Swizzled<Swizzle<2, 1, 3>, Strided<(Int<16>, Int<8>), (Int<8>, Int<1>)>>>("swizzle/swizzle_layout-0092", "[0, 8, 18, 26, 36, 44, 54, 62, 64, 72, 82, 90, 100, 108, 118, 126, 1, 9, 19, 27, 37, 45, 55, 63, 65, 73, 83, 91, 101, 109, 119, 127, 2, 10, 16, 24, 38, 46, 52, 60, 66, 74, 80, 88, 102, 110, 116, 124, 3, 11, 17, 25, 39, 47, 53, 61, 67, 75, 81, 89, 103, 111, 117, 125, 4, 12, 22, 30, 32, 40, 50, 58, 68, 76, 86, 94, 96, 104, 114, 122, 5, 13, 23, 31, 33, 41, 51, 59, 69, 77, 87, 95, 97, 105, 115, 123, 6, 14, 20, 28, 34, 42, 48, 56, 70, 78, 84, 92, 98, 106, 112, 120, 7, 15, 21, 29, 35, 43, 49, 57, 71, 79, 85, 93, 99, 107, 113, 121]");
    is::<Swizzled<Swizzle<3, 4, 7>, Strided<(Int<9>, (Int<2>,), Int<4>), (Int<1>, (Int<9>,), Int<18>)>>>("swizzle/swizzle_layout-0103", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71]");
    is::<Swizzled<Swizzle<2, 0, 3>, Strided<(Int<3>, Int<6>, Int<3>, Int<1>), (Int<1>, Int<3>, Int<18>, Int<54>)>>>("swizzle/swizzle_layout-0138", "[0, 1, 2, 3, 4, 5, 6, 7, 9, 8, 11, 10, 13, 12, 15, 14, 18, 19, 16, 17, 22, 23, 20, 21, 27, 26, 25, 24, 31, 30, 29, 28, 32, 33, 34, 35, 36, 37, 38, 39, 41, 40, 43, 42, 45, 44, 47, 46, 50, 51, 48, 49, 54, 55]");
    is::<Swizzled<Swizzle<1, 0, 1>, Strided<Int<1>, Int<0>>>>("swizzle/swizzle_layout-0154", "[0]");
    is::<Swizzled<Swizzle<3, 4, 3>, Strided<((Int<2>,), (Int<10>, Int<1>)), ((Int<10>,), (Int<1>, Int<1>))>>>("swizzle/swizzle_layout-0167", "[0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15, 6, 16, 7, 17, 8, 18, 9, 19]");
    is::<Swizzled<Swizzle<3, 7, 7>, Strided<(Int<1>, Int<6>, Int<4>, Int<6>), (Int<0>, Int<0>, Int<1>, Int<4>)>>>("swizzle/swizzle_layout-0181", "[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13, 13, 13, 14, 14, 14, 14, 14, 14, 15, 15, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 17, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 20, 20, 20, 20, 20, 20, 21, 21, 21, 21, 21, 21, 22, 22, 22, 22, 22, 22, 23, 23, 23, 23, 23, 23]");
    is::<Swizzled<Swizzle<1, 6, 3>, Strided<(Int<16>, Int<8>), (Int<8>, Int<1>)>>>("swizzle/swizzle_layout-0193", "[0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 1, 9, 17, 25, 33, 41, 49, 57, 65, 73, 81, 89, 97, 105, 113, 121, 2, 10, 18, 26, 34, 42, 50, 58, 66, 74, 82, 90, 98, 106, 114, 122, 3, 11, 19, 27, 35, 43, 51, 59, 67, 75, 83, 91, 99, 107, 115, 123, 4, 12, 20, 28, 36, 44, 52, 60, 68, 76, 84, 92, 100, 108, 116, 124, 5, 13, 21, 29, 37, 45, 53, 61, 69, 77, 85, 93, 101, 109, 117, 125, 6, 14, 22, 30, 38, 46, 54, 62, 70, 78, 86, 94, 102, 110, 118, 126, 7, 15, 23, 31, 39, 47, 55, 63, 71, 79, 87, 95, 103, 111, 119, 127]");
    is::<Swizzled<Swizzle<2, 3, 3>, Strided<(Int<2>, Int<3>, Int<4>, Int<2>), (Int<1>, Int<2>, Int<6>, Int<24>)>>>("swizzle/swizzle_layout-0209", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47]");
    is::<Swizzled<Swizzle<2, 6, 3>, Strided<(Int<2>,), (Int<1>,)>>>("swizzle/swizzle_layout-0227", "[0, 1]");
    is::<Swizzled<Swizzle<3, 1, -7>, Strided<(Int<4>,), (Int<1>,)>>>("swizzle/swizzle_layout-0244", "[0, 1, 258, 259]");
}

#[test]
fn swizzle_layout_composition() {
    is::<Composed<Swizzled<Swizzle<1, 5, 2>, Strided<(Int<16>, Int<1>), (Int<1>, Int<0>)>>, Strided<(Int<2>, Int<8>), (Int<1>, Int<2>)>>>("swizzle/swizzle_layout_composition-0001", "S<1,5,2> o 0 o (2,8):(1,2)");
    is::<Composed<Swizzled<Swizzle<4, 4, -8>, Strided<((Int<1>, Int<4>, Int<8>),), ((Int<7>, Int<1>, Int<4>),)>>, Strided<(Int<4>, Int<2>), (Int<1>, Int<4>)>>>("swizzle/swizzle_layout_composition-0002", "S<4,4,-8> o 0 o (4,2):(1,4)");
    is::<Composed<Swizzled<Swizzle<2, 1, -4>, Strided<(Int<1>,), (Int<1>,)>>, Strided<Int<1>, Int<2>>>>("swizzle/swizzle_layout_composition-0004", "S<2,1,-4> o 0 o 1:2");
    is::<Composed<Swizzled<Swizzle<3, 0, 3>, Strided<(Int<2>,), (Int<1>,)>>, Strided<Int<4>, Int<5>>>>("swizzle/swizzle_layout_composition-0010", "S<3,0,3> o 0 o 4:5");
    is::<Composed<Swizzled<Swizzle<3, 4, 3>, Strided<(Int<8>,), (Int<1>,)>>, Strided<(Int<1>, Int<10>), (Int<0>, Int<1>)>>>("swizzle/swizzle_layout_composition-0011", "S<3,4,3> o 0 o (1,10):(0,1)");
    is::<Composed<Swizzled<Swizzle<3, 6, 3>, Strided<(Int<4>,), (Int<1>,)>>, Strided<(Int<1>,), (Int<4>,)>>>("swizzle/swizzle_layout_composition-0012", "S<3,6,3> o 0 o (1):(4)");
    is::<Composed<Swizzled<Swizzle<4, 0, 4>, Strided<((Int<4>, (Int<2>, Int<1>)), Int<4>), ((Int<8>, (Int<4>, Int<4>)), Int<1>)>>, Strided<Int<2>, Int<16>>>>("swizzle/swizzle_layout_composition-0021", "S<4,0,4> o 0 o 2:2");
    is::<Composed<Swizzled<Swizzle<2, 3, 4>, Strided<((Int<16>, Int<1>, Int<8>), Int<1>, Int<2>), ((Int<16>, Int<16>, Int<2>), Int<2>, Int<1>)>>, Strided<(Int<1>, Int<16>), (Int<0>, Int<1>)>>>("swizzle/swizzle_layout_composition-0023", "S<2,3,4> o 0 o (1,16):(0,16)");
    is::<Composed<Swizzled<Swizzle<1, 4, -3>, Strided<((Int<1>, Int<8>), (Int<1>, Int<1>, Int<8>)), ((Int<0>, Int<1>), (Int<0>, Int<0>, Int<8>))>>, Strided<((Int<4>,), Int<2>), ((Int<8>,), Int<32>)>>>("swizzle/swizzle_layout_composition-0031", "S<1,4,-3> o 0 o ((4),2):((8),32)");
    is::<Composed<Swizzled<Swizzle<0, 7, 0>, Strided<(Int<8>,), (Int<1>,)>>, Strided<Int<2>, Int<3>>>>("swizzle/swizzle_layout_composition-0034", "2:3");
    is::<Composed<Swizzled<Swizzle<1, 7, -3>, Strided<(Int<8>,), (Int<1>,)>>, Strided<(Int<2>, Int<4>), (Int<4>, Int<1>)>>>("swizzle/swizzle_layout_composition-0036", "S<1,7,-3> o 0 o (2,4):(4,1)");
    is::<Composed<Swizzled<Swizzle<3, 6, 5>, Strided<(Int<16>, Int<2>), (Int<2>, Int<1>)>>, Strided<(Int<4>, Int<2>, Int<2>), (Int<4>, Int<1>, Int<2>)>>>("swizzle/swizzle_layout_composition-0038", "S<3,6,5> o 0 o (4,2,2):(8,2,4)");
    is::<Composed<Swizzled<Swizzle<1, 1, -4>, Strided<(Int<16>, Int<4>), (Int<1>, Int<16>)>>, Strided<Int<4>, Int<16>>>>("swizzle/swizzle_layout_composition-0041", "S<1,1,-4> o 0 o 4:16");
    is::<Composed<Swizzled<Swizzle<2, 0, 3>, Strided<(Int<2>,), (Int<1>,)>>, Strided<(Int<2>, Int<2>), (Int<0>, Int<1>)>>>("swizzle/swizzle_layout_composition-0048", "S<2,0,3> o 0 o (2,2):(0,1)");
    is::<Composed<Swizzled<Swizzle<4, 4, -8>, Strided<(Int<4>, Int<8>, Int<2>), (Int<16>, Int<2>, Int<1>)>>, Strided<(Int<8>, Int<1>), (Int<4>, Int<3>)>>>("swizzle/swizzle_layout_composition-0052", "S<4,4,-8> o 0 o (8,1):(2,1)");
    is::<Composed<Swizzled<Swizzle<1, 4, -3>, Strided<(Int<2>,), (Int<1>,)>>, Strided<Int<2>, Int<1>>>>("swizzle/swizzle_layout_composition-0054", "S<1,4,-3> o 0 o 2:1");
}

#[test]
fn tile_to_shape() {
    is::<TileToShape<Strided<(Int<2>, Int<4>), (Int<4>, Int<1>)>, (Int<8>, Int<8>)>>("layout/tile_to_shape-0000", "((2,4),(4,2)):((4,8),(1,32))");
    is::<TileToShapeIn<Strided<(Int<2>, Int<4>), (Int<4>, Int<1>)>, (Int<8>, Int<8>), LastFastest>>("layout/tile_to_shape-0014", "((2,4),(4,2)):((4,16),(1,8))");
    is::<TileToShapeIn<Strided<(Int<4>,), (Int<1>,)>, (Int<8>, Int<2>), InOrder<(Int<2>, Int<1>)>>>("layout/tile_to_shape-0037", "((4,2),(1,2)):((1,8),(0,4))");
    is::<TileToShape<Strided<((Int<2>,),), ((Int<1>,),)>, Int<2>>>("layout/tile_to_shape-0057", "(((2),1)):(((1),0))");
    is::<TileToShapeIn<Strided<(Int<2>, Int<9>), (Int<1>, Int<2>)>, (Int<2>, Int<18>), InOrder<(Int<5>, Int<0>)>>>("layout/tile_to_shape-0070", "((2,1),(9,2)):((1,0),(2,18))");
    is::<TileToShapeIn<Strided<((Int<8>, Int<2>), Int<1>), ((Int<2>, Int<1>), Int<2>)>, (Int<16>, Int<1>, Int<2>), FirstFastest>>("layout/tile_to_shape-0088", "(((8,2),1),(1,1),(1,2)):(((2,1),0),(2,0),(0,16))");
    is::<TileToShapeIn<Strided<Int<1>, Int<5>>, (Int<1>, (Int<1>, Int<2>)), LastFastest>>("layout/tile_to_shape-0102", "((1,1),(1,2)):((5,0),(0,1))");
    is::<TileToShapeIn<Strided<(Int<6>, (Int<10>, (Int<1>,))), (Int<10>, (Int<1>, (Int<1>,)))>, ((Int<3>, Int<4>), Int<30>), InOrder<(Int<1>, Int<0>)>>>("layout/tile_to_shape-0118", "((6,2),((10,(1)),3)):((10,180),((1,(1)),60))");
    is::<TileToShapeIn<Strided<((Int<3>, Int<3>),), ((Int<1>, Int<3>),)>, ((Int<12>, Int<3>),), InOrder<(Int<5>,)>>>("layout/tile_to_shape-0132", "(((3,3),4)):(((1,3),9))");
    is::<TileToShapeIn<Strided<(Int<4>, (Int<4>, Int<4>)), (Int<32>, (Int<1>, Int<8>))>, ((Int<2>, Int<4>), (Int<4>, Int<8>)), FirstFastest>>("layout/tile_to_shape-0144", "((4,2),((4,4),2)):((32,4),((1,8),128))");
    is::<TileToShapeIn<Strided<Int<4>, Int<1>>, (Int<12>, (Int<1>, Int<3>)), InOrder<(Int<0>, Int<1>)>>>("layout/tile_to_shape-0158", "((4,3),(1,3)):((1,4),(0,12))");
    is::<TileToShapeIn<Strided<((Int<2>, Int<2>), (Int<8>,), (Int<2>,)), ((Int<32>, Int<16>), (Int<2>,), (Int<1>,))>, (Int<8>, Int<32>, Int<2>), InOrder<(Int<2>, Int<1>, Int<0>)>>>("layout/tile_to_shape-0175", "(((2,2),2),((8),4),((2),1)):(((32,16),256),((2),64),((1),0))");
    is::<TileToShapeIn<Strided<(Int<3>, (Int<3>, Int<2>, Int<1>)), (Int<1>, (Int<3>, Int<81>, Int<0>))>, (Int<6>, (Int<12>, Int<1>), Int<1>), InOrder<(Int<0>, Int<2>, Int<1>)>>>("layout/tile_to_shape-0189", "((3,2),((3,2,1),2),(1,1)):((1,9),((3,81,0),18),(0,0))");
    is::<TileToShapeIn<Strided<(Int<8>, Int<4>), (Int<1>, Int<8>)>, (Int<24>, Int<16>), LastFastest>>("layout/tile_to_shape-0204", "((8,3),(4,4)):((1,128),(8,32))");
    is::<TileToShapeIn<Strided<(Int<3>, Int<1>), (Int<1>, Int<0>)>, (Int<6>, Int<2>), InOrder<(Int<0>, Int<1>)>>>("layout/tile_to_shape-0218", "((3,2),(1,2)):((1,3),(0,6))");
    is::<TileToShapeIn<Strided<Int<1>, Int<1>>, (Int<4>, Int<1>), FirstFastest>>("layout/tile_to_shape-0238", "((1,4),(1,1)):((1,1),(0,0))");
    is::<TileToShapeIn<Strided<Int<8>, Int<1>>, ((Int<4>, Int<2>),), InOrder<(Int<1>,)>>>("layout/tile_to_shape-0251", "((8,(1))):((1,(0)))");
    is::<TileToShapeIn<Strided<(Int<4>, Int<8>), (Int<1>, Int<4>)>, ((Int<12>, Int<1>), Int<32>, Int<2>), LastFastest>>("layout/tile_to_shape-0271", "((4,3),(8,4),(1,2)):((1,256),(4,64),(0,32))");
    is::<TileToShape<Strided<(Int<4>, Int<2>, Int<2>), (Int<1>, Int<8>, Int<4>)>, ((Int<1>, Int<16>), (Int<2>, Int<2>), Int<4>)>>("layout/tile_to_shape-0287", "((4,4),(2,2),(2,2)):((1,16),(8,64),(4,128))");
}

#[test]
fn tiled_divide() {
    is::<TiledDivide<Strided<(Int<4>, Int<2>, Int<3>), (Int<2>, Int<1>, Int<8>)>, Strided<Int<4>, Int<2>>>>("layout/tiled_divide-0000", "((2,2),2,3):((4,1),2,8)");
    is::<TiledDivide<Strided<Int<1>, Int<0>>, Int<1>>>("layout/tiled_divide-0013", "(1,1):(0,0)");
    is::<TiledDivide<Strided<((Int<4>, Int<8>), (Int<2>, Int<2>)), ((Int<32>, Int<1>), (Int<16>, Int<8>))>, Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>>>("layout/tiled_divide-0026", "((2,2),2,(4,2,2)):((1,32),64,(2,16,8))");
    is::<TiledDivide<Strided<((Int<4>,), Int<2>, Int<8>, Int<2>), ((Int<16>,), Int<1>, Int<2>, Int<64>)>, Strided<Int<2>, Int<4>>>>("layout/tiled_divide-0042", "(2,4,(8,2)):(1,16,(2,64))");
    is::<TiledDivide<Strided<(Int<1>,), (Int<1>,)>, (Int<1>,)>>("layout/tiled_divide-0056", "((1),(1)):((0),(0))");
    is::<TiledDivide<Strided<(Int<2>,), (Int<0>,)>, Strided<Int<1>, Int<1>>>>("layout/tiled_divide-0071", "(1,2):(0,0)");
    is::<TiledDivide<Strided<(Int<4>, Int<4>, Int<1>, Int<2>), (Int<2>, Int<16>, Int<0>, Int<8>)>, Strided<Int<8>, Int<1>>>>("layout/tiled_divide-0081", "((4,2),2,2):((2,16),32,8)");
    is::<TiledDivide<Strided<Int<6>, Int<1>>, Int<1>>>("layout/tiled_divide-0093", "(1,6):(0,1)");
    is::<TiledDivide<Strided<(Int<6>, Int<8>, Int<8>), (Int<1>, Int<6>, Int<48>)>, Strided<((Int<2>, (Int<3>, Int<4>)), Int<2>), ((Int<1>, (Int<2>, Int<6>)), Int<24>)>>>("layout/tiled_divide-0101", "(((2,(3,4)),2),8):(((1,(2,6)),24),48)");
    is::<TiledDivide<Strided<(Int<3>, Int<4>, Int<2>), (Int<3>, Int<144>, Int<18>)>, Int<6>>>("layout/tiled_divide-0122", "((3,2),2,2):((3,144),288,18)");
    is::<TiledDivide<Strided<(Int<16>, Int<2>, Int<2>), (Int<12>, Int<32>, Int<64>)>, Strided<(Int<16>, Int<1>, Int<2>), (Int<1>, Int<3>, Int<16>)>>>("layout/tiled_divide-0148", "((16,1,2),2):((12,32,32),64)");
    is::<TiledDivide<Strided<(Int<4>, (Int<4>, Int<2>), (Int<4>, Int<2>)), (Int<4>, (Int<64>, Int<32>), (Int<1>, Int<16>))>, (Int<1>, Int<2>, Strided<Int<4>, Int<2>>)>>("layout/tiled_divide-0162", "((1,2,(2,2)),4,(2,2),2):((0,64,(2,16)),4,(128,32),1)");
    is::<TiledDivide<Strided<(Int<2>,), (Int<4>,)>, (Strided<Int<2>, Int<1>>,)>>("layout/tiled_divide-0181", "((2),(1)):((4),(0))");
    is::<TiledDivide<Strided<Int<7>, Int<1>>, Int<7>>>("layout/tiled_divide-0197", "(7,1):(1,0)");
    is::<TiledDivide<Strided<(Int<4>, Int<4>, Int<4>), (Int<4>, Int<1>, Int<16>)>, Strided<((Int<4>, Int<4>),), ((Int<16>, Int<1>),)>>>("layout/tiled_divide-0214", "(((4,4)),4):(((16,4)),1)");
    is::<TiledDivide<Strided<(Int<4>,), (Int<2>,)>, Strided<(Int<2>,), (Int<2>,)>>>("layout/tiled_divide-0221", "((2),2):((4),2)");
    is::<TiledDivide<Strided<(Int<8>, Int<10>), (Int<8>, Int<64>)>, Strided<(Int<40>,), (Int<1>,)>>>("layout/tiled_divide-0236", "((40),2):((8),320)");
    is::<TiledDivide<Strided<(Int<4>, (Int<2>, Int<1>, Int<1>), (Int<2>, Int<4>), (Int<4>, Int<1>)), (Int<1>, (Int<6>, Int<0>, Int<0>), (Int<24>, Int<100>), (Int<0>, Int<0>))>, (Strided<Int<4>, Int<1>>,)>>("layout/tiled_divide-0249", "((4),1,(2,1,1),(2,4),(4,1)):((1),0,(6,0,0),(24,100),(0,0))");
    is::<TiledDivide<Strided<(Int<1>,), (Int<0>,)>, (Strided<Int<1>, Int<0>>,)>>("layout/tiled_divide-0260", "((1),(1)):((0),(0))");
}

#[test]
fn tiled_product() {
    is::<TiledProduct<Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>, Strided<Int<6>, Int<1>>>>("layout/tiled_product-0000", "((2,2),2,3):((4,1),2,8)");
    is::<TiledProduct<Strided<Int<4>, Int<1>>, Strided<Int<1>, Int<0>>>>("layout/tiled_product-0008", "(4,1):(1,0)");
    is::<TiledProduct<Strided<(Int<4>, Int<3>, Int<5>), (Int<15>, Int<5>, Int<1>)>, (Strided<(Int<8>,), (Int<12>,)>,)>>("layout/tiled_product-0022", "((4),((2,4)),3,5):((15),((12,60)),5,1)");
    is::<TiledProduct<Strided<(Int<4>, Int<2>), (Int<2>, Int<1>)>, (Strided<Int<6>, Int<1>>,)>>("layout/tiled_product-0034", "((4),(2,3),2):((2),(1,8),1)");
    is::<TiledProduct<Strided<((Int<6>, Int<2>),), ((Int<1>, Int<6>),)>, Strided<(Int<8>, Int<1>, Int<1>, Int<2>), (Int<10>, Int<0>, Int<0>, Int<12>)>>>("layout/tiled_product-0047", "(((6,2)),8,1,1,2):(((1,6)),120,0,0,144)");
    is::<TiledProduct<Strided<(Int<4>, Int<4>, Int<2>), (Int<4>, Int<1>, Int<16>)>, Strided<(Int<1>, Int<2>), (Int<0>, Int<1>)>>>("layout/tiled_product-0060", "((4,4,2),1,2):((4,1,16),0,32)");
    is::<TiledProduct<Strided<(Int<8>,), (Int<1>,)>, Int<5>>>("layout/tiled_product-0071", "((8),5):((1),8)");
    is::<TiledProduct<Strided<(Int<2>, Int<4>, Int<2>, Int<2>), (Int<1>, Int<2>, Int<8>, Int<16>)>, (Int<2>, Int<4>, Int<3>, Int<2>)>>("layout/tiled_product-0081", "((2,4,2,2),2,(2,2),3,2):((1,2,8,16),2,(1,8),1,1)");
    is::<TiledProduct<Strided<(Int<2>, Int<1>), (Int<1>, Int<2>)>, Strided<Int<24>, Int<24>>>>("layout/tiled_product-0091", "((2,1),24):((1,2),48)");
    is::<TiledProduct<Strided<(Int<2>, (Int<2>, Int<4>), Int<4>), (Int<1>, (Int<2>, Int<4>), Int<16>)>, (Int<3>, Strided<Int<4>, Int<1>>, Strided<Int<8>, Int<0>>)>>("layout/tiled_product-0098", "((2,(2,4),4),3,(2,2),8):((1,(2,4),16),2,(1,16),0)");
    is::<TiledProduct<Strided<(Int<3>, Int<1>, Int<8>), (Int<1>, Int<0>, Int<3>)>, (Int<1>, Strided<(Int<4>,), (Int<1>,)>)>>("layout/tiled_product-0109", "((3,1),1,(4),8):((1,0),0,(1),3)");
    is::<TiledProduct<Strided<(Int<4>, Int<2>, Int<2>, Int<4>), (Int<16>, Int<8>, Int<4>, Int<1>)>, Strided<(Int<3>, Int<4>), (Int<1>, Int<3>)>>>("layout/tiled_product-0128", "((4,2,2,4),3,4):((16,8,4,1),64,192)");
    is::<TiledProduct<Strided<(Int<4>, Int<2>, Int<8>), (Int<16>, Int<1>, Int<2>)>, Int<2>>>("layout/tiled_product-0143", "((4,2,8),2):((16,1,2),64)");
    is::<TiledProduct<Strided<(Int<1>, Int<5>, Int<3>), (Int<0>, Int<1>, Int<5>)>, Int<1>>>("layout/tiled_product-0154", "((1,5,3),1):((0,1,5),0)");
    is::<TiledProduct<Strided<(Int<9>, Int<2>, Int<3>), (Int<1>, Int<9>, Int<18>)>, Strided<Int<7>, Int<1>>>>("layout/tiled_product-0163", "((9,2,3),7):((1,9,18),54)");
    is::<TiledProduct<Strided<Int<10>, Int<1>>, Strided<(Int<2>, (Int<3>, Int<1>), Int<1>, Int<3>), (Int<1>, (Int<2>, Int<6>), Int<6>, Int<6>)>>>("layout/tiled_product-0175", "(10,2,(3,1),1,3):(1,10,(20,60),60,60)");
    is::<TiledProduct<Strided<Int<2>, Int<3>>, Strided<(Int<4>,), (Int<0>,)>>>("layout/tiled_product-0183", "(2,(4)):(3,(0))");
    is::<TiledProduct<Strided<Int<4>, Int<1>>, (Strided<(Int<1>, Int<4>), (Int<4>, Int<1>)>,)>>("layout/tiled_product-0191", "((4),((1,4))):((1),((16,4)))");
    is::<TiledProduct<Strided<(Int<8>, Int<1>, Int<8>), (Int<96>, Int<1>, Int<1>)>, (Strided<(Int<2>, Int<2>), (Int<1>, Int<2>)>,)>>("layout/tiled_product-0201", "((8),(2,2),1,8):((96),(1,2),1,1)");
    is::<TiledProduct<Strided<(Int<10>, Int<6>, Int<1>), (Int<1>, Int<10>, Int<1>)>, Int<5>>>("layout/tiled_product-0214", "((10,6,1),5):((1,10,1),60)");
}

#[test]
fn upcast() {
    is::<Upcast<Strided<(Int<8>, Int<4>), (Int<1>, Int<8>)>, 2>>("layout/upcast-0001", "(4,4):(1,4)");
    is::<Upcast<Strided<(Int<8>, Int<4>), (Int<1>, Int<16>)>, 2>>("layout/upcast-0017", "(4,4):(1,8)");
    is::<Upcast<Strided<(Int<16>,), (Int<1>,)>, 8>>("layout/upcast-0030", "(2):(1)");
    is::<Upcast<Strided<(Int<4>, Int<2>), (Int<16>, Int<2>)>, 1>>("layout/upcast-0043", "(4,2):(16,2)");
    is::<Upcast<Strided<(Int<6>,), (Int<1>,)>, 8>>("layout/upcast-0054", "(1):(1)");
    is::<Upcast<Strided<Int<1>, Int<0>>, 16>>("layout/upcast-0066", "1:0");
    is::<Upcast<Strided<(Int<4>,), (Int<-2>,)>, 4>>("layout/upcast-0085", "(2):(-1)");
    is::<Upcast<Strided<((Int<1>, Int<16>), Int<16>), ((Int<0>, Int<1>), Int<16>)>, 8>>("layout/upcast-0097", "((1,2),16):((0,1),2)");
    is::<Upcast<Strided<(Int<2>, ((Int<2>, Int<16>),)), (Int<12>, ((Int<24>, Int<16>),))>, 2>>("layout/upcast-0110", "(2,((2,16))):(6,((12,8)))");
    is::<Upcast<Strided<Int<5>, Int<0>>, 4>>("layout/upcast-0120", "5:0");
    is::<Upcast<Strided<(Int<4>, Int<4>, Int<16>), (Int<1>, Int<4>, Int<16>)>, 2>>("layout/upcast-0132", "(2,4,16):(1,2,8)");
    is::<Upcast<Strided<((Int<1>, Int<4>), Int<4>, (Int<8>,), Int<2>), ((Int<16>, Int<128>), Int<12>, (Int<32>,), Int<64>)>, 4>>("layout/upcast-0152", "((1,4),4,(8),2):((4,32),3,(8),16)");
    is::<Upcast<Strided<Int<4>, Int<1>>, 8>>("layout/upcast-0163", "1:1");
    is::<Upcast<Strided<(Int<10>, (Int<2>, Int<2>)), (Int<1>, (Int<20>, Int<40>))>, 2>>("layout/upcast-0178", "(5,(2,2)):(1,(10,20))");
    is::<Upcast<Strided<Int<4>, Int<2>>, 4>>("layout/upcast-0194", "2:1");
    is::<Upcast<Strided<(Int<4>, Int<3>), (Int<2>, Int<64>)>, 4>>("layout/upcast-0208", "(2,3):(1,16)");
    is::<Upcast<Strided<(Int<4>, (Int<1>,), Int<2>), (Int<6>, (Int<0>,), Int<1>)>, 3>>("layout/upcast-0218", "(4,(1),1):(2,(0),1)");
    is::<Upcast<Strided<Int<12>, Int<1>>, 2>>("layout/upcast-0230", "6:1");
    is::<Upcast<Strided<(Int<2>, Int<8>), (Int<1>, Int<12>)>, 3>>("layout/upcast-0244", "(1,8):(1,4)");
    is::<Upcast<Strided<(Int<9>,), (Int<1>,)>, 4>>("layout/upcast-0259", "(3):(1)");
}

#[test]
fn zipped_divide() {
    is::<ZippedDivide<Strided<(Int<4>, Int<2>, Int<3>), (Int<2>, Int<1>, Int<8>)>, Strided<Int<4>, Int<2>>>>("layout/zipped_divide-0000", "((2,2),(2,3)):((4,1),(2,8))");
    is::<ZippedDivide<Strided<Int<8>, Int<0>>, Int<4>>>("layout/zipped_divide-0017", "(4,2):(0,0)");
    is::<ZippedDivide<Strided<(Int<16>,), (Int<1>,)>, (Strided<Int<4>, Int<4>>,)>>("layout/zipped_divide-0028", "((4),(4)):((4),(1))");
    is::<ZippedDivide<Strided<(Int<24>,), (Int<1>,)>, Int<4>>>("layout/zipped_divide-0038", "(4,6):(1,4)");
    is::<ZippedDivide<Strided<(Int<8>, (Int<4>, Int<4>)), (Int<1>, (Int<8>, Int<32>))>, Int<2>>>("layout/zipped_divide-0056", "(2,64):(1,2)");
    is::<ZippedDivide<Strided<(Int<2>, Int<2>, Int<2>, ((Int<4>, Int<4>),)), (Int<64>, Int<5>, Int<0>, ((Int<10>, Int<4>),))>, Int<2>>>("layout/zipped_divide-0087", "(2,(2,2,4,4)):(64,(5,0,10,4))");
    is::<ZippedDivide<Strided<(Int<5>,), (Int<1>,)>, (Int<5>,)>>("layout/zipped_divide-0099", "((5),(1)):((1),(0))");
    is::<ZippedDivide<Strided<(Int<8>, Int<1>), (Int<1>, Int<0>)>, Strided<Int<8>, Int<1>>>>("layout/zipped_divide-0121", "(8,1):(1,0)");
    is::<ZippedDivide<Strided<(Int<2>, (Int<4>,)), (Int<4>, (Int<1>,))>, Int<1>>>("layout/zipped_divide-0131", "(1,(2,4)):(0,(4,1))");
    is::<ZippedDivide<Strided<((Int<4>, Int<4>),), ((Int<4>, Int<1>),)>, Strided<((Int<2>, Int<2>),), ((Int<1>, Int<2>),)>>>("layout/zipped_divide-0142", "(((2,2)),4):(((4,8)),1)");
    is::<ZippedDivide<Strided<(Int<2>, (Int<2>,), (Int<8>, Int<3>), Int<4>), (Int<8>, (Int<1>,), (Int<16>, Int<0>), Int<2>)>, Strided<((Int<2>, Int<4>), Int<4>), ((Int<2>, Int<4>), Int<96>)>>>("layout/zipped_divide-0156", "(((2,4),4),(2,(2,3))):(((1,16),2),(8,(64,0)))");
    is::<ZippedDivide<Strided<(Int<2>, Int<16>, Int<8>), (Int<128>, Int<8>, Int<1>)>, Strided<(Int<2>, Int<16>), (Int<1>, Int<2>)>>>("layout/zipped_divide-0170", "((2,16),8):((128,8),1)");
    is::<ZippedDivide<Strided<Int<4>, Int<4>>, Strided<Int<4>, Int<1>>>>("layout/zipped_divide-0182", "(4,1):(4,0)");
    is::<ZippedDivide<Strided<(Int<3>,), (Int<1>,)>, Strided<Int<3>, Int<1>>>>("layout/zipped_divide-0192", "(3,1):(1,0)");
    is::<ZippedDivide<Strided<((Int<2>, Int<1>), (Int<2>, Int<8>), Int<2>), ((Int<4>, Int<384>), (Int<1>, Int<48>), Int<24>)>, (Strided<Int<2>, Int<1>>, (Int<2>, Int<4>), Int<1>)>>("layout/zipped_divide-0202", "((2,(2,4),1),(1,(1,2),2)):((4,(1,48),0),(0,(0,192),24))");
    is::<ZippedDivide<Strided<(Int<2>, Int<2>), (Int<2>, Int<1>)>, Int<4>>>("layout/zipped_divide-0217", "((2,2),1):((2,1),0)");
    is::<ZippedDivide<Strided<(Int<4>, Int<4>), (Int<4>, Int<1>)>, Strided<Int<4>, Int<4>>>>("layout/zipped_divide-0230", "(4,4):(1,4)");
    is::<ZippedDivide<Strided<(((Int<8>,), Int<4>),), (((Int<4>,), Int<1>),)>, Strided<Int<4>, Int<2>>>>("layout/zipped_divide-0243", "(4,(2,4)):(8,(4,1))");
    is::<ZippedDivide<Strided<(Int<2>, Int<8>, Int<4>, Int<4>), (Int<128>, Int<4>, Int<32>, Int<1>)>, (Strided<Int<2>, Int<1>>,)>>("layout/zipped_divide-0256", "((2),(1,8,4,4)):((128),(0,4,32,1))");
    is::<ZippedDivide<Strided<(Int<4>, (Int<1>, Int<2>), Int<4>, (Int<4>, Int<4>)), (Int<32>, (Int<1>, Int<4>), Int<1>, (Int<8>, Int<128>))>, (Strided<(((Int<4>, Int<1>),),), (((Int<1>, Int<3>),),)>,)>>("layout/zipped_divide-0270", "(((((4,1)))),(1,(1,2),4,(4,4))):(((((32,96)))),(0,(1,4),1,(8,128)))");
}

#[test]
fn zipped_product() {
    is::<ZippedProduct<Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>, Strided<(Int<4>, Int<2>), (Int<2>, Int<1>)>>>("layout/zipped_product-0001", "((2,2),(4,2)):((4,1),(8,2))");
    is::<ZippedProduct<Strided<((Int<2>, Int<2>), Int<3>), ((Int<1>, Int<2>), Int<4>)>, ((Int<2>, Int<2>), Int<2>)>>("layout/zipped_product-0012", "(((2,2),3),((2,2),2)):(((1,2),4),((2,1),1))");
    is::<ZippedProduct<Strided<(Int<1>, Int<3>, Int<2>, (Int<5>,)), (Int<0>, Int<10>, Int<5>, (Int<1>,))>, Strided<(Int<1>, (Int<2>, Int<8>), (Int<1>, Int<1>)), (Int<1>, (Int<2>, Int<4>), (Int<1>, Int<2>))>>>("layout/zipped_product-0021", "((1,3,2,(5)),(1,(2,8),(1,1))):((0,10,5,(1)),(30,(60,120),(30,60)))");
    is::<ZippedProduct<Strided<(Int<1>, Int<8>), (Int<1>, Int<1>)>, (Strided<(Int<3>, Int<2>), (Int<1>, Int<3>)>, Strided<(Int<2>,), (Int<5>,)>)>>("layout/zipped_product-0036", "((1,8),((3,2),(2))):((1,1),((1,3),(40)))");
    is::<ZippedProduct<Strided<(Int<2>, Int<3>), (Int<3>, Int<1>)>, Strided<(Int<2>,), (Int<1>,)>>>("layout/zipped_product-0049", "((2,3),(2)):((3,1),(6))");
    is::<ZippedProduct<Strided<(Int<1>, Int<2>, Int<8>, Int<2>), (Int<32>, Int<16>, Int<1>, Int<8>)>, Strided<(Int<1>, (Int<1>, Int<8>)), (Int<0>, (Int<0>, Int<24>))>>>("layout/zipped_product-0060", "((1,2,8,2),(1,(1,8))):((32,16,1,8),(0,(0,768)))");
    is::<ZippedProduct<Strided<(Int<4>,), (Int<1>,)>, (Int<1>,)>>("layout/zipped_product-0074", "((4),(1)):((1),(0))");
    is::<ZippedProduct<Strided<(Int<3>, Int<10>, Int<2>), (Int<2>, Int<6>, Int<1>)>, Int<3>>>("layout/zipped_product-0084", "((3,10,2),3):((2,6,1),60)");
    is::<ZippedProduct<Strided<((Int<1>,), Int<2>, Int<5>, Int<2>), ((Int<0>,), Int<2>, Int<4>, Int<1>)>, Int<5>>>("layout/zipped_product-0097", "(((1),2,5,2),5):(((0),2,4,1),20)");
    is::<ZippedProduct<Strided<(Int<8>, Int<1>, Int<1>), (Int<1>, Int<0>, Int<0>)>, (Int<4>, Int<1>)>>("layout/zipped_product-0107", "((8,1),(4,1,1)):((1,0),(8,0,0))");
    is::<ZippedProduct<Strided<((Int<4>,), (Int<2>, Int<4>), Int<1>), ((Int<2>,), (Int<1>, Int<8>), Int<5>)>, Int<8>>>("layout/zipped_product-0121", "(((4),(2,4),1),8):(((2),(1,8),5),32)");
    is::<ZippedProduct<Strided<(Int<10>, (Int<2>,)), (Int<2>, (Int<1>,))>, Strided<(Int<16>,), (Int<0>,)>>>("layout/zipped_product-0131", "((10,(2)),(16)):((2,(1)),(0))");
    is::<ZippedProduct<Strided<(Int<3>, Int<12>), (Int<12>, Int<1>)>, Strided<(Int<1>, Int<8>), (Int<16>, Int<32>)>>>("layout/zipped_product-0142", "((3,12),(1,8)):((12,1),(576,1152))");
    is::<ZippedProduct<Strided<(Int<16>,), (Int<1>,)>, (Int<1>,)>>("layout/zipped_product-0158", "((16),(1)):((1),(0))");
    is::<ZippedProduct<Strided<(Int<4>, Int<8>, Int<2>), (Int<16>, Int<2>, Int<1>)>, (Int<1>, Int<1>)>>("layout/zipped_product-0172", "((4,8),(1,1,2)):((16,2),(0,0,1))");
    is::<ZippedProduct<Strided<(Int<4>, Int<1>, Int<10>), (Int<10>, Int<2>, Int<1>)>, (Int<3>,)>>("layout/zipped_product-0181", "((4),(3,1,10)):((10),(1,2,1))");
    is::<ZippedProduct<Strided<(Int<4>, Int<4>), (Int<4>, Int<1>)>, Int<4>>>("layout/zipped_product-0194", "((4,4),4):((4,1),16)");
    is::<ZippedProduct<Strided<(Int<2>, Int<2>, Int<10>), (Int<20>, Int<10>, Int<1>)>, (Int<1>, Int<3>, Strided<(Int<2>,), (Int<1>,)>)>>("layout/zipped_product-0206", "((2,2,10),(1,3,(2))):((20,10,1),(0,1,(10)))");
}
